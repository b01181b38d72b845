// Prints the hash of the scores of all images in a page of examples/digits_in_the_browser: node hash_of_page.mjs PAGE
import { readFileSync } from "node:fs";
const page = readFileSync(process.argv[2], "utf8");
const data = JSON.parse(page.match(/<script id="data"[^>]*>(.*?)<.script>/s)[1]);
const { instance } = await WebAssembly.instantiate(Buffer.from(data.wasm, "base64"), {});
const { memory, image, predict, hash, _initialize } = instance.exports;
_initialize?.();
const images = Buffer.from(data.images, "base64");
let state = 0xcbf29ce484222325n;
for (let i = 0; i < images.length; i += 784) {
  new Uint8Array(memory.buffer, image(), 784).set(images.subarray(i, i + 784));
  predict();
  state = BigInt.asUintN(64, hash(state));
}
console.log(state.toString(16).padStart(16, "0"));
