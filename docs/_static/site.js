// Names the buttons that open a part of the navigation, which the theme leaves without a text.
document.addEventListener("DOMContentLoaded", () => {
  for (const summary of document.querySelectorAll(".bd-sidenav summary")) {
    const link = summary.parentElement.parentElement.querySelector("a");
    if (link) summary.setAttribute("aria-label", `Pages of ${link.textContent}`);
  }
});
