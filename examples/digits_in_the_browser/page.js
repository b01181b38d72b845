const $ = (id) => document.getElementById(id);
const data = JSON.parse($("data").textContent);
const decode = (base64) => Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));

/* ---- the net: the functions of page.c, and views of its memory, which never grows */

const SIDE = 28, PIXELS = SIDE * SIDE, SHOWN = ["Conv2D", "ReLU", "MaxPool2D", "Dense"];
const net = (await WebAssembly.instantiate(decode(data.wasm))).instance.exports;
net._initialize?.();
const input = new Uint8Array(net.memory.buffer, net.image(), PIXELS);
const scores = new Float32Array(net.memory.buffer, net.scores(), 10);
const layers = Array.from({ length: net.layers() }, (_, i) => {
  const pixels = net.layer_pixels(i), channels = net.layer_channels(i);
  const values = new Float32Array(net.memory.buffer, net.layer_output(i), pixels * channels);
  return { kind: string(net.layer_name(i)).split(" ")[1], pixels, channels, values };
}).filter((layer) => SHOWN.includes(layer.kind));

const images = decode(data.images);
const labelOf = (i) => Math.floor(i / data.samples);
const image = (i) => images.subarray(i * PIXELS, (i + 1) * PIXELS);

function string(place) {
  const bytes = new Uint8Array(net.memory.buffer, place);
  return new TextDecoder().decode(bytes.slice(0, bytes.indexOf(0)));
}

function softmax(numbers) {
  const largest = Math.max(...numbers), powers = Array.from(numbers, (x) => Math.exp(x - largest));
  const sum = powers.reduce((a, b) => a + b);
  return powers.map((x) => x / sum);
}

/* ---- the board: white ink on black, 280 x 280 */

const board = $("board"), ink = board.getContext("2d", { willReadFrequently: true }), SIZE = board.width;
Object.assign(ink, { lineWidth: 22, lineCap: "round", lineJoin: "round", strokeStyle: "#fff" });
let example = null;             // the number of the example image on the board, or null for a drawing

function wipe() {
  example = null;
  ink.fillStyle = "#000";
  ink.fillRect(0, 0, SIZE, SIZE);
}

function stroke(from, to) {
  if (example !== null) wipe();
  ink.beginPath();
  ink.moveTo(from.x, from.y);
  ink.lineTo(to.x, to.y);
  ink.stroke();
  update();
}

function drawImage(context, bytes) {
  const pixel = context.canvas.width / SIDE;
  bytes.forEach((gray, i) => {
    context.fillStyle = `rgb(${gray} ${gray} ${gray})`;
    context.fillRect((i % SIDE) * pixel, Math.floor(i / SIDE) * pixel, pixel, pixel);
  });
}

/* Averages SIDE runs of `step` numbers of each line, from `start` on. Lines become columns. */
function resample(source, lines, start, step) {
  const target = new Float32Array(SIDE * lines);
  for (let i = 0; i < SIDE; i++) {
    const begin = start + i * step, end = begin + step;
    for (let k = Math.max(0, Math.floor(begin)); k < Math.min(SIZE, end); k++) {
      const share = (Math.min(k + 1, end) - Math.max(k, begin)) / step;
      for (let line = 0; line < lines; line++) target[i * lines + line] += share * source[line * SIZE + k];
    }
  }
  return target;
}

/* Returns the drawing as MNIST has it: the longer side 20 pixels, the centre of mass in the middle. Null without ink. */
function read() {
  if (example !== null) return image(example);
  const { data: rgba } = ink.getImageData(0, 0, SIZE, SIZE), gray = new Uint8Array(SIZE * SIZE);
  for (let i = 0; i < gray.length; i++) gray[i] = rgba[4 * i];
  let left = SIZE, right = 0, top = SIZE, bottom = 0, mass = 0, massX = 0, massY = 0;
  gray.forEach((value, i) => {
    if (!value) return;
    const x = i % SIZE, y = Math.floor(i / SIZE);
    left = Math.min(left, x), right = Math.max(right, x + 1), top = Math.min(top, y), bottom = Math.max(bottom, y + 1);
    mass += value, massX += value * (x + 0.5), massY += value * (y + 0.5);
  });
  if (!mass) return null;
  const step = Math.max(right - left, bottom - top) / 20, middle = (SIDE + 1) / 2 * step;    // MNIST's middle is pixel 14
  const narrow = resample(gray, SIZE, massX / mass - middle, step);
  const small = resample(narrow, SIDE, massY / mass - middle, step);
  const lightest = small.reduce((a, b) => Math.max(a, b));
  return Uint8Array.from(small, (value) => Math.round(value * 255 / lightest));
}

/* ---- what the page shows */

const rows = Array.from({ length: 10 }, (_, digit) => {
  const row = $("scores").insertRow();
  row.innerHTML = `<th scope="row">${digit}</th><td><div class="bar"><i></i></div></td><td></td><td></td>`;
  return { row, bar: row.querySelector("i"), probability: row.cells[2], score: row.cells[3] };
});

const ZOOM = { 28: 2, 14: 3, 10: 4, 5: 6 };        // larger pixels for smaller maps

/* Adds a row to the page: a canvas for each map, or a strip for a vector. Returns their contexts. */
function addLayer(kind, pixels, channels) {
  const side = Math.sqrt(pixels), count = side > 1 ? channels : 1;
  const size = side === 1 ? `${channels} numbers` : count > 1 ? `${count} maps of ${side} × ${side}` : `${side} × ${side}`;
  const figure = document.createElement("figure");
  figure.innerHTML = `<figcaption>${kind} <span class="note">${size}</span></figcaption>
    <div class="${side > 1 ? "maps" : "strip"}" role="img" aria-label="${kind}, ${size}"></div>`;
  figure.lastElementChild.innerHTML = side > 1
    ? `<canvas width="${side}" height="${side}"></canvas>`.repeat(count)
    : `<canvas width="${channels}" height="1"></canvas>`;
  figure.style.setProperty("--columns", Math.min(count, 8));
  figure.style.setProperty("--width", `${side > 1 ? side * (ZOOM[side] ?? 2) : Math.max(6 * channels, 240)}px`);
  $("layers").append(figure);
  return Array.from(figure.querySelectorAll("canvas"), (canvas) => canvas.getContext("2d"));
}

const [inputMap] = addLayer("Image", PIXELS, 1);
for (const layer of layers) layer.maps = addLayer(layer.kind, layer.pixels, layer.channels);

function paint(layer, blank) {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim().split(" ").map(Number);
  const zero = colour("--zero"), plus = colour("--plus"), minus = colour("--minus");
  const { values, channels, maps } = layer, largest = values.reduce((a, b) => Math.max(a, Math.abs(b)), 1e-9);
  maps.forEach((map, channel) => {
    const picture = map.createImageData(map.canvas.width, map.canvas.height);
    for (let i = 0; i < picture.width * picture.height; i++) {
      const value = blank ? 0 : values[maps.length > 1 ? i * channels + channel : i] / largest, end = value < 0 ? minus : plus;
      for (let c = 0; c < 3; c++) picture.data[4 * i + c] = zero[c] + Math.abs(value) * (end[c] - zero[c]);
      picture.data[4 * i + 3] = 255;
    }
    map.putImageData(picture, 0, 0);
  });
}

function show() {
  const bytes = read(), blank = !bytes;
  input.set(bytes ?? new Uint8Array(PIXELS));
  net.predict();
  const probabilities = softmax(scores), best = scores.indexOf(Math.max(...scores));
  const percent = (p) => `${(100 * p).toFixed(1)} %`;
  rows.forEach(({ row, bar, probability, score }, i) => {
    row.className = i === best && !blank ? "winner" : "";
    bar.style.transform = `scaleX(${blank ? 0 : probabilities[i]})`;
    probability.textContent = blank ? "–" : percent(probabilities[i]);
    score.textContent = blank ? "–" : scores[i].toFixed(2).replace("-", "−");
  });
  $("digit").textContent = blank ? "–" : best;
  const label = example !== null ? ` The label of this example is ${labelOf(example)}.` : "";
  say(blank ? "The board is empty." : `The net reads ${best}, with a probability of ${percent(probabilities[best])}.${label}`);
  drawImage(inputMap, input);
  layers.forEach((layer) => paint(layer, blank));
}

let frame = 0, pause = 0;
function update() {             // at most once per frame
  frame ||= requestAnimationFrame(() => { frame = 0; show(); });
}
function say(text) {            // after a pause in drawing: screen readers read it aloud
  clearTimeout(pause);
  pause = setTimeout(() => { $("answer").textContent = text; }, 200);
}

/* ---- pointer, keyboard, buttons */

const pen = { x: SIZE / 2, y: SIZE / 2, down: false }, pressed = new Set(), STEP = 8;
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
let last = null;                // the last point of a stroke of the pointer

function showPen(visible) {
  $("pen").hidden = !visible;
  $("pen").classList.toggle("down", pen.down);
  Object.assign($("pen").style, { left: `${100 * pen.x / SIZE}%`, top: `${100 * pen.y / SIZE}%` });
  $("pen-state").textContent = visible ? `The pen is ${pen.down ? "down" : "up"}.` : "";
}

function clear() {
  wipe();
  pen.down = false;
  showPen(!$("pen").hidden);
  update();
}

function point(event) {
  const box = board.getBoundingClientRect();
  return { x: (event.clientX - box.left) * SIZE / box.width, y: (event.clientY - box.top) * SIZE / box.height };
}

board.addEventListener("pointerdown", (event) => {
  if (!event.isPrimary || event.button) return;
  board.setPointerCapture(event.pointerId);
  pen.down = false;
  showPen(false);
  last = point(event);
  stroke(last, last);
});
board.addEventListener("pointermove", (event) => {
  if (!last || !event.isPrimary) return;
  const parts = event.getCoalescedEvents?.() ?? [];
  for (const part of parts.length ? parts : [event]) {
    stroke(last, point(part));
    last = point(part);
  }
});
for (const end of ["pointerup", "pointercancel"]) board.addEventListener(end, () => { last = null; });

board.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  if (event.key in ARROWS) {
    pressed.add(event.key);
    const from = { ...pen };
    for (const key of pressed) {        // two arrows: a diagonal
      pen.x = Math.min(Math.max(pen.x + STEP * ARROWS[key][0], 0), SIZE);
      pen.y = Math.min(Math.max(pen.y + STEP * ARROWS[key][1], 0), SIZE);
    }
    if (pen.down) stroke(from, pen);
  } else if (event.key === " ") {
    if (event.repeat) return event.preventDefault();
    pen.down = !pen.down;
    if (pen.down) stroke(pen, pen);
  } else if (["Delete", "Backspace", "Escape"].includes(event.key)) clear();
  else return;
  event.preventDefault();
  showPen(true);
});
board.addEventListener("keyup", (event) => pressed.delete(event.key));
board.addEventListener("focus", () => { if (board.matches(":focus-visible")) showPen(true); });
board.addEventListener("blur", () => { pressed.clear(); pen.down = false; showPen(false); });
$("clear").addEventListener("click", clear);

function showExample(i) {
  clear();
  example = i;
  drawImage(ink, image(i));
}

for (let digit = 0; digit < 10; digit++) {
  const button = document.createElement("button"), canvas = document.createElement("canvas");
  let next = 0;                 // each press shows another image of this digit
  canvas.width = canvas.height = SIDE;
  drawImage(canvas.getContext("2d"), image(digit * data.samples));
  button.type = "button";
  button.setAttribute("aria-label", `Example of ${digit}`);
  button.append(canvas);
  button.addEventListener("click", () => showExample(digit * data.samples + next++ % data.samples));
  $("examples").append(button);
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", update);
showExample(2 * data.samples);
show();

/* ---- the bits: a few images at a time, so that the page responds meanwhile */

const count = images.length / PIXELS;
$("count").textContent = count;
let hash = 0xcbf29ce484222325n, right = 0, time = 0;
for (let i = 0; i < count; i++) {
  if (i % 10 === 0) await new Promise((resume) => setTimeout(resume));
  const begin = performance.now();
  input.set(image(i));
  net.predict();
  time += performance.now() - begin;
  hash = net.hash(hash);
  right += scores.indexOf(Math.max(...scores)) === labelOf(i);
}
update();                       // the layers show the board again
const text = BigInt.asUintN(64, hash).toString(16).padStart(16, "0"), equal = text === data.hash;
$("hash").textContent = text;
$("verdict").textContent = equal ? "✓ equal" : "✗ different";
$("verdict").className = equal ? "equal" : "different";
$("speed").textContent = `Your browser took ${(time / count).toFixed(2)} ms per image, and was right for ${right} of ${count}.`;
