/* The widget of docs/explanation/max-pooling.md: its story in seven steps, its batch, its keys and buttons.

   max_pool.js computes, max_pool_view.js draws. */
"use strict";

(() => {
  const { countWindows, pixelsOf, batch, windowsWonBy } = globalThis.maxPool;
  const { STEPS, number, factor, pixel, letter, listItems, write, make } = globalThis.maxPoolView;
  const { makeBlock, showExample, showComparison } = globalThis.maxPoolView;
  const root = document.getElementById("max-pool"), part = (name) => root.querySelector(`[data-part="${name}"]`);

  const STORY = [
    ["The inputs", "A batch of images at a max-pool. Each letter of y is a window; point at it to see its pixels. " +
      "Each image is pooled by itself. Tap a pixel to change it."],
    ["The winners", "In each window the largest pixel wins; of equal ones the first, in row-major order. " +
      "Each example has its own winners, and the pool remembers them."],
    ["The outputs", "y is the maximum of each window: the value of its winner."],
    ["The gradient dy arrives", "Now backward. For each example, dy has a number per window: " +
      "the slope of that example's loss with respect to this output."],
    ["The gradient dx", "Each dy goes to the winner of its window in the same example. " +
      "A pixel that wins several windows gets the sum, a pixel that wins none gets exactly 0."],
    ["A parameter before the pool", "Let one weight, w = 1, multiply every pixel before the pool: x = w · image. " +
      "Each example has its own dw, the sum of image · dx. Only these are summed over the batch, at the end."],
    ["Averaging first", "And if the images and the dy were averaged first, to go back only once? " +
      "The comparison below the examples shows it: the numbers are others (≠), and they are wrong."],
  ];
  const IMAGES = [        // 5x5; an image of 4x4 is the upper left part
    [[8, 6, 1, 4, 2], [0, 1, 2, 3, 5], [3, 0, 2, 9, 1], [5, 5, 1, 0, 4], [2, 6, 3, 1, 7]],
    [[0, 6, 5, 2, 3], [1, 8, 1, 0, 4], [7, 2, 1, 6, 0], [1, 4, 3, 2, 8], [3, 0, 2, 5, 1]],
    [[2, 1, 9, 0, 4], [5, 3, 1, 6, 2], [0, 4, 2, 3, 8], [6, 1, 7, 5, 0], [1, 7, 0, 2, 3]],
  ];
  const GRADIENTS = [     // up to 4x4 outputs
    [[1, 2, 1, -1], [-1, -3, 2, 0], [2, 1, -2, 1], [0, -1, 1, 2]],
    [[1, -2, 2, 1], [-2, 4, -1, 1], [1, -1, 3, 0], [2, 1, 0, -1]],
    [[2, -1, 0, 1], [1, 1, -1, 2], [-1, 2, 1, -2], [1, 0, 2, -1]],
  ];
  const CAPTIONS = { x: "x, the image", y: "y = max", dy: "dy", dx: "dx" };
  const MEAN_CAPTIONS = { y: "mean of y", dx: "mean of dx" };
  const ARROWS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
  const LIMIT = 9;

  let values;             // { x: images, dy: gradients }, of three examples in full size
  let scene = { step: 1 }, blocks = [], comparison, selected, randomBatches = 0;
  const places = new WeakMap();                       // cell: its place, { block, name, row, column }

  function restore() {
    values = { x: structuredClone(IMAGES), dy: structuredClone(GRADIENTS) };
  }

  function randomize() {
    const random = (low, high) => low + Math.floor(Math.random() * (high - low + 1));
    values.x = values.x.map((image) => image.map((row) => row.map(() => random(0, 9))));
    values.dy = values.dy.map((dy) => dy.map((row) => row.map(() => random(-3, 3))));
  }

  /* Returns the images and gradients that are shown. */
  function shown() {
    const crop = (side) => (array) => array.slice(0, side).map((row) => row.slice(0, side));
    const [images, dys] = [values.x, values.dy].map((arrays) => arrays.slice(0, blocks.length));
    return { images: images.map(crop(scene.side)), dys: dys.map(crop(scene.outputs)) };
  }

  const firstPixel = () => ({ block: blocks[0], name: "x", row: 0, column: 0, quiet: true });
  const compute = () => batch(shown().images, shown().dys, scene.pool);

  /* ---- drawing */

  /* Builds the blocks for the chosen windows, padding and number of examples. */
  function build() {
    write(part("change"), "");
    const [size, stride, side] = part("window").value.split(" ").map(Number);
    const pool = { size, stride, padding: Number(part("padding").checked) };
    scene = { step: scene.step, pool, side, outputs: countWindows(side, pool) };
    blocks = Array.from({ length: Number(part("count").value) },
      (_, n) => makeBlock(scene, n + 1, `Example ${n + 1}`, CAPTIONS, true));
    comparison = {
      right: makeBlock(scene, "right", "✓ Example by example, then the mean", MEAN_CAPTIONS),
      wrong: makeBlock(scene, "wrong", "✗ The mean first", { ...CAPTIONS, x: "x, the mean image", dy: "mean of dy" }),
    };
    for (const block of [...blocks, ...Object.values(comparison)]) {
      for (const [name, { cells }] of Object.entries(block.grids)) {
        cells.forEach((line, row) => line.forEach((cell, column) => places.set(cell, { block, name, row, column })));
      }
    }
    part("examples").replaceChildren(...blocks.map(({ element }) => element));
    part("comparison").replaceChildren(comparison.right.element, comparison.wrong.element);
    root.style.setProperty("--image", side + 0.8 * pool.padding);
    root.style.setProperty("--outputs", scene.outputs);
    root.classList.toggle("overlapping", stride < size);
    root.classList.toggle("large", side + scene.outputs > 7);
    selected = firstPixel();
    show();
  }

  function show() {
    const { step } = scene, { images, dys } = shown(), result = compute(), [title, text] = STORY[step - 1];
    write(part("title"), `Step ${step} of ${STORY.length}: ${title}`);
    write(part("text"), text);
    blocks.forEach((block, n) => showExample(block, images[n], dys[n], result.examples[n]));
    part("reasons").replaceChildren(...listItems(showComparison(comparison, images, dys, result)));
    write(part("fact"), factOf(result));
    part("averaging").hidden = step < STEPS.averaging;
    part("steps").querySelectorAll("button").forEach((button, i) => {
      if (i + 1 === step) button.setAttribute("aria-current", "step");
      else button.removeAttribute("aria-current");
    });
    part("previous").setAttribute("aria-disabled", step === 1);
    part("next").setAttribute("aria-disabled", step === STORY.length);
    write(part("selected"), `${nameOf(selected)}: ${number(valueOf(selected))}`);
    highlight(selected);
  }

  /* Returns a sentence on the whole batch. */
  function factOf({ examples, sum, dw }) {
    const n = examples.length, [first, ...others] = examples.map(({ winners }) => winners.flat().map(String));
    if (scene.step < STEPS.winners) return "";
    if (scene.step >= STEPS.dw) {
      const terms = examples.map((example) => factor(example.dw)).join(" + ");
      return `Batch: dw = (${terms}) / ${n} = ${number(sum)} / ${n} = ${number(dw)}`;
    }
    const different = first.filter((winner, k) => others.some((winners) => winners[k] !== winner)).length;
    return `The ${n} examples have different winners in ${different} of ${first.length} windows.`;
  }

  /* Outlines the windows of a place: those that a pixel wins, or at first those that it is in; else its window. */
  function highlight({ block, name, row, column, quiet }) {
    root.querySelectorAll(".active").forEach((element) => element.classList.remove("active"));
    if (!block.grids.x || quiet) return;
    const n = blocks.indexOf(block), image = n < 0 ? null : shown().images[n];
    let windows = [[row, column]];
    if (name.endsWith("x")) {
      if (!image) return;
      const { winners } = compute().examples[n], all = winners.flatMap((line, i) => line.map((_, j) => [i, j]));
      const holds = ([i, j]) => pixelsOf(image, scene.pool, i, j).some(([r, c]) => r === row && c === column);
      windows = scene.step < STEPS.winners ? all.filter(holds) : windowsWonBy(winners, row, column);
    }
    for (const [i, j] of windows) {
      for (const each of ["x", "dx"]) block.grids[each].outlines[i][j].classList.add("active");
      for (const each of ["y", "dy"]) block.grids[each].cells[i][j].classList.add("active");
    }
  }

  /* ---- changing */

  const numberOf = ({ block }) => blocks.indexOf(block);
  const rowOf = (place) => values[place.name][numberOf(place)][place.row];
  const valueOf = (place) => rowOf(place)[place.column];
  const nameOf = ({ block, name, row, column }) => `${block.title}, ` +
    (name === "dy" ? `dy of window ${letter(scene, [row, column])}` : pixel(row, column));
  const isEditable = (place) => place && numberOf(place) >= 0 && (place.name === "x" || place.name === "dy");

  function change(place, value) {
    const before = compute().examples[numberOf(place)];
    rowOf(place)[place.column] = Math.min(Math.max(value, -LIMIT), LIMIT);
    selected = { ...place, quiet: false };
    show();
    say(place, before, compute().examples[numberOf(place)]);
  }

  /* Tells what a change did. */
  function say(place, before, { winners, dx }) {
    const { step } = scene, dxAt = ([r, c]) => step < STEPS.dx ? "" : ` dx there is ${number(dx[r][c])}.`;
    const moves = winners.flatMap((line, i) => line.flatMap((winner, j) => {
      const name = letter(scene, [i, j]), from = pixel(...before.winners[i][j]), to = pixel(...winner);
      return from === to ? [] : `The winner of window ${name} moves from ${from} to ${to}.${dxAt(winner)}`;
    }));
    let effect = "";
    if (place.name === "dy") {
      const winner = winners[place.row][place.column];
      effect = `It goes to ${pixel(...winner)}.${dxAt(winner)}`;
    } else if (step >= STEPS.winners) effect = moves.length ? moves.join(" ") : "All winners stay.";
    write(part("change"), `${nameOf(place)} is now ${number(valueOf(place))}. ${effect}`);
  }

  function goTo(step) {
    scene.step = Math.min(Math.max(step, 1), STORY.length);
    if (scene.step < STEPS.dy && selected.name === "dy") selected = firstPixel();
    write(part("change"), "");
    show();
  }

  function select(place) {
    selected = place;
    const { cells } = place.block.grids[place.name];
    cells.flat().forEach((cell) => { cell.tabIndex = -1; });
    cells[place.row][place.column].tabIndex = 0;
    show();
  }

  /* ---- keys and buttons */

  function onKey(event) {
    const place = places.get(event.target), { key } = event;
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    if (!place) {
      if (!part("steps").contains(event.target) || !ARROWS[key]?.[1]) return;
      goTo(scene.step + ARROWS[key][1]);
      part("steps").querySelector("[aria-current]").focus();
    } else if (key in ARROWS || key === "Home" || key === "End") {
      const { cells } = place.block.grids[place.name], last = cells.length - 1;
      const [down, right] = ARROWS[key] ?? [0, key === "Home" ? -last : last];
      const clamp = (index) => Math.min(Math.max(index, 0), last);
      cells[clamp(place.row + down)][clamp(place.column + right)].focus();
    } else if (/^[0-9]$/.test(key)) change(place, Number(key));
    else if (key === "+" || key === "-") change(place, valueOf(place) + (key === "+" ? 1 : -1));
    else return;
    event.preventDefault();
  }

  const placeAt = (event) => places.get(event.target.closest?.(".cell"));
  const raise = (place) => change(place, valueOf(place) === LIMIT ? 0 : valueOf(place) + 1);
  root.addEventListener("keydown", onKey);
  root.addEventListener("click", (event) => { if (isEditable(placeAt(event))) raise(placeAt(event)); });
  root.addEventListener("focusin", (event) => { if (isEditable(placeAt(event))) select(placeAt(event)); });
  root.addEventListener("pointerover", (event) => highlight(placeAt(event) ?? selected));
  root.addEventListener("pointerleave", () => highlight(selected));
  part("lower").addEventListener("click", () => change(selected, valueOf(selected) - 1));
  part("raise").addEventListener("click", () => change(selected, valueOf(selected) + 1));
  part("previous").addEventListener("click", () => goTo(scene.step - 1));
  part("next").addEventListener("click", () => goTo(scene.step + 1));
  for (const name of ["window", "padding", "count"]) part(name).addEventListener("change", build);
  part("random").addEventListener("click", () => {
    randomize();
    show();
    randomBatches += 1;
    write(part("change"), `This is random batch ${randomBatches}.`);     // a screen reader reads new text alone
  });
  part("reset").addEventListener("click", () => {
    part("settings").reset();
    restore();
    scene.step = 1;
    build();
  });
  STORY.forEach(([title], i) => {
    const button = make("button", { type: "button", "aria-label": `Step ${i + 1}: ${title}` }, String(i + 1));
    button.addEventListener("click", () => goTo(i + 1));
    part("steps").append(make("li", {}, button));
  });

  restore();
  build();
  root.hidden = false;
})();
