/* Draws a small batch at a max-pool: blocks of grids, and what their numbers mean, in words.

   A block shows one example: x -> y above, dx <- dy below. It belongs to a scene, { step, pool, side, outputs }: the
   step of the story, the pool, and the sides of x and y. max_pool.js computes, max_pool_page.js has the controls. */
"use strict";

globalThis.maxPoolView = (() => {
  const { table, mean, averageFirst, windowsWonBy, comesTooLate } = globalThis.maxPool;
  const STEPS = { winners: 2, outputs: 3, dy: 4, dx: 5, dw: 6, averaging: 7 };         // each is shown from here on

  /* ---- words */

  const SPACE = "\u00a0";                  // where a line must not break
  const number = (value) => String(Number(value.toFixed(2))).replace("-", "−");
  const signed = (value) => (value > 0 ? "+" : "") + number(value);
  const factor = (value) => value < 0 ? `(${number(value)})` : number(value);
  const pixel = (row, column) => `row ${row + 1}, column ${column + 1}`;
  const letter = (scene, [i, j]) => String.fromCharCode(65 + i * scene.outputs + j);
  const listOf = (scene, windows) =>
    `window${windows.length > 1 ? "s" : ""} ${windows.map((window) => letter(scene, window)).join(", ")}`;
  const markOf = (scene, windows) =>
    windows.length > 4 ? `${windows.length}×` : windows.map((window) => letter(scene, window)).join("");
  const signOf = (value) => value > 0 ? "plus" : value < 0 ? "minus" : "zero";

  /* Replaces a text only by another one, because a live region speaks whenever its text is replaced. */
  function write(element, text) {
    if (element.textContent !== text) element.textContent = text;
  }

  function make(tag, attributes, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  }

  const listItems = (texts) => texts.map((text) => make("li", {}, text));

  /* ---- blocks of grids */

  /* Returns a block of these grids, as { name: caption }; x and dy can be edited if `editable`.

     Without x and dy, their places tell that there is one for each example. */
  function makeBlock(scene, id, title, captions, editable = false) {
    const block = { scene, title, grids: {}, sums: make("ul", { class: "sums" }), dw: make("p", { class: "dw" }) };
    for (const [name, caption] of Object.entries(captions)) {
      block.grids[name] = makeGrid(scene, name, title, caption, editable && (name === "x" || name === "dy"));
    }
    const others = "x" in captions
      ? ["forward", "backward"].map((way) => make("div", { class: `arrow ${way}`, "aria-hidden": "true" }))
      : ["x", "dy"].map((name) => make("p", { class: `${name} apart` }, `one ${name} for each example`));
    const maps = make("div", { class: "maps" }, ...Object.values(block.grids).map(({ figure }) => figure), ...others);
    block.element = make("section", { class: "block", id: `max-pool-${id}`, "aria-label": title },
      make("h3", {}, title), maps, block.sums, block.dw);
    return block;
  }

  /* Returns a figure, its grid of cells (buttons, if editable), and in x and dx the outlines of the windows. */
  function makeGrid(scene, name, title, caption, editable) {
    const { pool } = scene, isImage = name.endsWith("x"), side = isImage ? scene.side : scene.outputs;
    const edge = isImage ? pool.padding : 0;
    const cells = table(side, side, (row, column) => {
      const role = editable ? { type: "button", role: "gridcell", tabindex: row || column ? -1 : 0 } : { role: "cell" };
      const cell = make(editable ? "button" : "div", role);
      cell.style.gridArea = `${row + 1 + edge} / ${column + 1 + edge}`;
      return cell;
    });
    const outlines = isImage ? table(scene.outputs, scene.outputs, (i, j) => {
      const outline = make("div", { class: "window", "aria-hidden": "true" });
      const [top, left] = [i * pool.stride + 1, j * pool.stride + 1], span = `span ${pool.size}`;
      outline.style.gridArea = `${top} / ${left} / ${span} / ${span}`;
      return outline;
    }) : [];
    const role = editable ? { role: "grid", "aria-describedby": "max-pool-keys" } : { role: "table" };
    const rows = cells.map((row) => make("div", { role: "row" }, ...row));
    const grid = make("div", { class: edge ? "grid padded" : "grid", ...role, "aria-label": `${title}: ${caption}` },
      ...rows, ...outlines.flat());
    grid.style.setProperty("--side", side);
    return { figure: make("figure", { class: name }, make("figcaption", {}, caption), grid), cells, outlines };
  }

  /* Fills a grid: `describe` returns a cell's text, its mark in the corner, its classes and its label. */
  function fill(grid, describe) {
    grid.cells.forEach((line, row) => line.forEach((cell, column) => {
      const { text, mark = "", kind = "", label } = describe(row, column);
      cell.className = `cell ${kind} ${text.length > 3 ? "long" : ""}`;
      cell.textContent = text;
      cell.dataset.mark = mark;
      cell.setAttribute("aria-label", label);
    }));
  }

  /* ---- one example */

  /* Shows an image, its winners, y, dy, dx and dw in a block, as far as the step of the scene goes. */
  function showExample(block, image, dy, { winners, y, dx, dw }) {
    const { scene, title, grids } = block, { step } = scene;
    fill(grids.x, (r, c) => describePixel(scene, title, image, winners, r, c));
    fill(grids.y, (i, j) => {
      const mark = letter(scene, [i, j]), shown = step >= STEPS.outputs;
      const label = `${title}, window ${mark}` + (shown ? `: ${number(y[i][j])}, from ${pixel(...winners[i][j])}` : "");
      return { text: shown ? number(y[i][j]) : "", mark, label };
    });
    fill(grids.dy, (i, j) => {
      const mark = letter(scene, [i, j]);
      const label = `${title}, window ${mark}, dy ${signed(dy[i][j])}, goes to ${pixel(...winners[i][j])}`;
      return { text: signed(dy[i][j]), mark, kind: signOf(dy[i][j]), label };
    });
    const sums = [];
    fill(grids.dx, (r, c) => {
      const won = windowsWonBy(winners, r, c), terms = won.map(([i, j]) => factor(dy[i][j]));
      if (!won.length) return { text: "0", kind: "zero", label: `${title}, ${pixel(r, c)}, dx 0` };
      const sum = terms.length > 1 ? `${terms.join(" + ")} = ${number(dx[r][c])}` : number(dx[r][c]);
      if (won.length > 1) sums.push(`dx at ${pixel(r, c)} = ${sum} (${listOf(scene, won)})`);
      const label = `${title}, ${pixel(r, c)}, dx ${sum}, from ${listOf(scene, won)}`;
      return { text: signed(dx[r][c]), mark: markOf(scene, won), kind: `winner ${signOf(dx[r][c])}`, label };
    });
    block.sums.replaceChildren(...listItems(sums));
    const terms = image.flatMap((row, r) => row.flatMap(
      (value, c) => dx[r][c] ? `${factor(value)}${SPACE}·${SPACE}${factor(dx[r][c])}` : []));
    write(block.dw, `dw = ${terms.length ? `${terms.join(" + ")} =${SPACE}` : ""}${number(dw)}`);
    grids.dy.figure.hidden = step < STEPS.dy;
    grids.dx.figure.hidden = block.element.querySelector(".backward").hidden = step < STEPS.dx;
    block.sums.hidden = step < STEPS.dx || !sums.length;
    block.dw.hidden = step < STEPS.dw;
  }

  function describePixel({ step, ...scene }, title, image, winners, r, c) {
    const label = `${title}, ${pixel(r, c)}, value ${number(image[r][c])}`, text = number(image[r][c]);
    if (step < STEPS.winners) return { text, label };
    const won = windowsWonBy(winners, r, c), late = comesTooLate(image, winners, scene.pool, r, c);
    const words = [label, won.length && `wins ${listOf(scene, won)}`, late && "equals a winner but comes later"];
    return {
      text, label: words.filter(Boolean).join(", "),
      mark: won.length ? markOf(scene, won) : late ? "=" : "", kind: won.length ? "winner" : late ? "late" : "",
    };
  }

  /* ---- averaging first */

  /* Shows the mean of the examples' results (right) and the results of the mean image (wrong); marks differences. */
  function showComparison({ right, wrong }, images, dys, result) {
    const { scene } = right, first = averageFirst(images, dys, scene.pool);
    const means = { y: mean(result.examples.map(({ y }) => y)), dx: mean(result.examples.map(({ dx }) => dx)) };
    showExample(wrong, first.image, first.dy, first);
    fill(right.grids.y, (i, j) => {
      const mark = letter(scene, [i, j]);
      return { text: number(means.y[i][j]), mark, label: `Mean of y, window ${mark}: ${number(means.y[i][j])}` };
    });
    fill(right.grids.dx, (r, c) => ({
      text: signed(means.dx[r][c]), kind: signOf(means.dx[r][c]),
      label: `Mean of dx, ${pixel(r, c)}: ${number(means.dx[r][c])}`,
    }));
    for (const name of ["y", "dx"]) {
      wrong.grids[name].cells.forEach((line, r) => line.forEach((cell, c) => {
        if (!differ(first[name][r][c], means[name][r][c])) return;
        cell.classList.add("differs");
        cell.dataset.mark += "≠";
        cell.setAttribute("aria-label",
          `${cell.getAttribute("aria-label")}; the mean of ${name} is ${number(means[name][r][c])}`);
      }));
    }
    write(right.dw, `dw = ${number(result.dw)}`);
    return reasons(scene, images, result, means, first);
  }

  const differ = (a, b) => Math.abs(a - b) > 1e-9;

  /* Returns sentences on what averaging first gets wrong, with the numbers of this batch. */
  function reasons(scene, images, { examples, dw }, means, first) {
    const sentences = [], windows = table(scene.outputs, scene.outputs, (i, j) => [i, j]).flat();
    const losers = windows.flatMap(([i, j]) => {        // the mean image's winners, in examples in which they lose
      const [r, c] = first.winners[i][j], never = !examples.some(({ winners }) => `${winners[i][j]}` === `${[r, c]}`);
      return examples.map(({ y }, n) => ({ i, j, r, c, n, never, value: images[n][r][c], y: y[i][j] }));
    }).filter(({ i, j, value, y }) => value < y && first.dy[i][j]);
    const loser = losers.find(({ never }) => never) ?? losers[0];
    if (loser) {
      const { i, j, r, c, n, never, value, y } = loser, example = `example ${n + 1}`;
      sentences.push(
        `Window ${letter(scene, [i, j])}: the maximum of the mean image is at ${pixel(r, c)}. ` +
        `${never ? "In no example does this pixel win the window" : `In ${example} this pixel loses`}. ` +
        `Raise it in ${example} from ${number(value)} to ${number(value + 0.1)}, and the output stays ${number(y)}: ` +
        `its slope is 0. Averaging first would give it ${signed(first.dy[i][j])}.`);
    }
    const lower = windows.find(([i, j]) => differ(means.y[i][j], first.y[i][j]));
    if (lower) {
      const [i, j] = lower;
      sentences.push(`Window ${letter(scene, lower)}: the mean of the maxima is ${number(means.y[i][j])}, ` +
        `but the maximum of the mean image is ${number(first.y[i][j])}.`);
    }
    if (differ(dw, first.dw)) {
      sentences.push(`The weight: dw is ${number(dw)}, but averaging first gives ${number(first.dw)}.` +
        (dw * first.dw < 0 ? " Even the sign is wrong: a step of gradient descent would raise the loss." : ""));
    }
    const moved = means.dx.flatMap((line, r) => line.map((_, c) => [r, c]))
      .find(([r, c]) => differ(means.dx[r][c], first.dx[r][c]));
    if (moved && !sentences.length) {                   // of equal pixels, another one is the first
      const [r, c] = moved;
      sentences.push(`The mean of dx at ${pixel(r, c)} is ${number(means.dx[r][c])}, ` +
        `but averaging first gives ${number(first.dx[r][c])}.`);
    }
    return sentences.length ? sentences : ["Here both ways happen to agree. Change a pixel, or take a random batch."];
  }

  return { STEPS, number, factor, pixel, letter, listItems, write, make, makeBlock, showExample, showComparison };
})();
