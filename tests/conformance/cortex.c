/* A program for a Cortex-M under qemu: scores of the inputs from stdin to stdout; what they cost, and the file's own test, to stderr.
 * -DREAL: the type of the net; -DCALLER_MODE: rounding bits of FPSCR (24 to 22) that the caller of the net has set. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "net.h"

#define REGISTER(address) (*(volatile uint32_t *)(address))
#define STACK 8192                                       /* bytes that are looked at */

extern uint32_t stack_top[], data_load[], data_start[], data_end[], bss_start[], bss_end[];
extern void initialise_monitor_handles(void);            /* newlib's semihosting */
int net_test(void);
void reset(void);
void _init(void);
void _fini(void);

static REAL x[NET_INPUTS], scores[NET_OUTPUTS];

void _init(void) {}
void _fini(void) {}
static void fault(void) { _Exit(99); }

/* The number of bytes below this function's frame that a prediction has changed. */
__attribute__((noinline)) static unsigned stack_of_prediction(void) {
  volatile uint8_t *const here = (volatile uint8_t *)__builtin_frame_address(0) - 64;
  unsigned used = STACK;
  for (int i = 1; i <= STACK; i++) here[-i] = 0xa5;
  net_predict(x, scores);
  while (used && here[-(int)used] == 0xa5) used--;
  return used;
}

static uint32_t ticks_of_prediction(void) {
  REGISTER(0xe000e014) = 0xffffff;                       /* SysTick: reload, current value, control */
  REGISTER(0xe000e018) = 0;
  REGISTER(0xe000e010) = 5;
  const uint32_t before = REGISTER(0xe000e018);
  net_predict(x, scores);
  return (before - REGISTER(0xe000e018)) & 0xffffff;
}

int main(void) {
  uint32_t ticks = 0;
  unsigned stack = 0;
  while (fread(x, sizeof x, 1, stdin) == 1) {
    stack = stack_of_prediction();
    ticks = ticks_of_prediction();
    fwrite(scores, sizeof scores, 1, stdout);
  }
  fflush(stdout);
  fprintf(stderr, "ticks %lu stack %u test %d\n", (unsigned long)ticks, stack, net_test());
  return 0;
}

void reset(void) {
#ifdef __ARM_FP
  REGISTER(0xe000ed88) |= 0xf << 20;                     /* CPACR: the floating-point unit is on */
  __asm__ volatile("dsb\n isb");
#ifdef CALLER_MODE
  __asm__ volatile("vmsr fpscr, %0" : : "r"((uint32_t)CALLER_MODE << 22));
#endif
#endif
  memcpy(data_start, data_load, (size_t)((char *)data_end - (char *)data_start));
  memset(bss_start, 0, (size_t)((char *)bss_end - (char *)bss_start));
  initialise_monitor_handles();
  exit(main());
}

typedef void handler(void);
__attribute__((section(".vectors"), used)) static const struct { uint32_t *stack; handler *handlers[15]; } vectors = {
  stack_top, {reset, fault, fault, fault, fault, fault, 0, 0, 0, 0, fault, fault, 0, fault, fault}};
