/* page.c: what the page calls. With digits.c it becomes a WebAssembly module without imports; all memory is static. */

#include <stdint.h>
#include <string.h>

#include "digits.h"

#define EXPORT(name) __attribute__((export_name(#name))) /* without it, the linker drops a function */

static uint8_t image[DIGITS_INPUTS];
static float scores[DIGITS_OUTPUTS], arena[DIGITS_ARENA];

/* The page writes an image there, calls predict, and reads the scores. */
EXPORT(image) uint8_t *page_image(void) { return image; }
EXPORT(scores) const float *page_scores(void) { return scores; }
EXPORT(predict) void page_predict(void) { digits_predict_uint8(image, scores, arena); }

/* The output of each layer after predict: [pixels][channels]. */
EXPORT(layers) int32_t page_layers(void) { return DIGITS_VALUES; }
EXPORT(layer_name) const char *page_layer_name(int32_t i) { return digits_values[i].layer; }
EXPORT(layer_output) const float *page_layer_output(int32_t i) { return arena + digits_values[i].place; }
EXPORT(layer_pixels) int32_t page_layer_pixels(int32_t i) { return digits_values[i].pixels; }
EXPORT(layer_channels) int32_t page_layer_channels(int32_t i) { return digits_values[i].channels; }

/* FNV-1a, continued by the bits of the scores as little-endian bytes. It starts from 0xcbf29ce484222325. */
EXPORT(hash) uint64_t page_hash(uint64_t hash) {
  for (int i = 0; i < DIGITS_OUTPUTS; i++) {
    uint32_t bits;
    memcpy(&bits, &scores[i], sizeof bits);
    for (int shift = 0; shift < 32; shift += 8) hash = (hash ^ (bits >> shift & 255)) * 0x100000001b3;
  }
  return hash;
}
