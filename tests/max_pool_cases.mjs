// Computes cases with docs/_static/max_pool.js, from JSON to JSON: node max_pool_cases.mjs MAX_POOL_JS < CASES
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
const { batch, averageFirst } = createRequire(import.meta.url)(process.argv[2]);
const results = JSON.parse(readFileSync(0, "utf8")).map(({ images, dys, pool }) => {
  const numbers = images.map((image) => image.map((row) => row.map(Number)));       // "NaN" and "-Infinity" are strings
  return { ...batch(numbers, dys, pool), first: averageFirst(numbers, dys, pool) };
});
const special = (value) => typeof value === "number" && !Number.isFinite(value);
console.log(JSON.stringify(results, (_, value) => special(value) ? String(value) : value));
