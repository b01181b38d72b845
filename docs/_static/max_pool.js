/* Max-pooling of a batch of small images, forward and backward, with the rules of minidl.

   An image is an array of rows of numbers; it has one channel. A pool is { size, stride, padding }, the same in both
   directions. Before the pool, one parameter w = 1 multiplies every pixel, so that x = w · image.

   tests/test_max_pooling_page.py compares every number with minidl. A page loads this file as a script and finds its
   functions in globalThis.maxPool; Node.js gets them from require. */
"use strict";

globalThis.maxPool = (() => {
  /* Returns an array of rows, filled by a function of row and column. */
  function table(rows, columns, value) {
    return Array.from({ length: rows }, (_, r) => Array.from({ length: columns }, (_, c) => value(r, c)));
  }

  /* Returns the number of windows along an axis of this length. */
  function countWindows(length, { size, stride, padding }) {
    return Math.floor((length + 2 * padding - size) / stride) + 1;
  }

  /* Returns the pixels [row, column] of window (i, j) in row-major order. Padding has no pixels, so it never wins. */
  function pixelsOf(image, pool, i, j) {
    const pixels = [], top = i * pool.stride - pool.padding, left = j * pool.stride - pool.padding;
    for (let r = Math.max(top, 0); r < Math.min(top + pool.size, image.length); r++) {
      for (let c = Math.max(left, 0); c < Math.min(left + pool.size, image[0].length); c++) pixels.push([r, c]);
    }
    return pixels;
  }

  /* True if a value takes the place of the best one so far: it is greater, or the first NaN. Equal values do not. */
  function isBetter(value, best) {
    return !(value <= best) && !Number.isNaN(best);
  }

  /* Returns y, the maximum of each window, and winners, the pixel [row, column] that each comes from. */
  function forward(image, pool) {
    const windows = [countWindows(image.length, pool), countWindows(image[0].length, pool)];
    const winners = table(...windows, (i, j) => pixelsOf(image, pool, i, j).reduce(
      (winner, pixel) => isBetter(image[pixel[0]][pixel[1]], image[winner[0]][winner[1]]) ? pixel : winner));
    return { winners, y: winners.map((row) => row.map(([r, c]) => image[r][c])) };
  }

  /* Returns dx: the winner of a window receives all of its dy, a pixel that wins several windows the sum. */
  function backward(image, winners, dy) {
    const dx = image.map((row) => row.map(() => 0));
    winners.forEach((row, i) => row.forEach(([r, c], j) => { dx[r][c] += dy[i][j]; }));
    return dx;
  }

  /* Returns one example's winners, y, dx and dw, its gradient of w: the sum of image · dx over all pixels. */
  function backpropagate(image, dy, pool) {
    const { winners, y } = forward(image, pool), dx = backward(image, winners, dy);
    return { winners, y, dx, dw: image.flat().reduce((sum, value, k) => sum + value * dx.flat()[k], 0) };
  }

  /* Back-propagates a batch: example by example. Only the gradients of w are added, at the end. */
  function batch(images, dys, pool) {
    const examples = images.map((image, n) => backpropagate(image, dys[n], pool));
    const sum = examples.reduce((total, { dw }) => total + dw, 0);
    return { examples, sum, dw: sum / images.length };
  }

  /* Returns the element-wise mean of arrays of rows. */
  function mean(arrays) {
    return arrays[0].map((row, r) => row.map((_, c) => arrays.reduce((sum, a) => sum + a[r][c], 0) / arrays.length));
  }

  /* What comes of averaging first: the back-propagation of one example, the mean image with the mean dy. Wrong. */
  function averageFirst(images, dys, pool) {
    const image = mean(images), dy = mean(dys);
    return { image, dy, ...backpropagate(image, dy, pool) };
  }

  /* Returns the windows [i, j] that a pixel wins. */
  function windowsWonBy(winners, row, column) {
    return winners.flatMap((line, i) => line.flatMap(([r, c], j) => r === row && c === column ? [[i, j]] : []));
  }

  /* True if a pixel is as large as the winner of one of its windows, but comes later. */
  function comesTooLate(image, winners, pool, row, column) {
    return winners.some((line, i) => line.some(([r, c], j) =>
      (r !== row || c !== column) && image[r][c] === image[row][column] &&
      pixelsOf(image, pool, i, j).some((pixel) => pixel[0] === row && pixel[1] === column)));
  }

  return { table, countWindows, pixelsOf, forward, backward, batch, mean, averageFirst, windowsWonBy, comesTooLate };
})();

if (typeof module === "object") module.exports = globalThis.maxPool;
