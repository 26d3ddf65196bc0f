/* The page that the emulated board (qemu_board.c) and the worker inside it share: QEMU in user mode
 * keeps guest and host in one address space. Each process has its own copy after fork, so that one
 * process's instructions never count for another. Plain C. */
#ifndef DEVICE_AGENT_BOARD_COUNTER_H_
#define DEVICE_AGENT_BOARD_COUNTER_H_

#include <stdint.h>

#define TW_BOARD_MAGIC 0x315352544e435754u /* "TWCNTRS1" */

typedef struct {
  uint64_t magic;
  uint64_t cycles; /* of all instructions, and of the caches' misses */
  uint64_t instructions;
  uint64_t empty_caches; /* the guest writes 1: the next access finds all caches empty */
} TwBoardCounter;

#endif /* DEVICE_AGENT_BOARD_COUNTER_H_ */
