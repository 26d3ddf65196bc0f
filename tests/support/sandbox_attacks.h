/* What a test patches into the code of sandbox_attacks.c. For C and C++. */
#pragma once

#include <stdint.h>

#define TW_ATTACK_MAGIC "tw-attack-plan-1"
#define TW_ATTACK_SECRET_BYTES 24

struct AttackPlan {
  char magic[24];
  char attack[40];  /* its name */
  char path[256];   /* a file that is not the candidate's */
  uint64_t address; /* of TW_ATTACK_SECRET_BYTES in the memory of `pid` */
  int32_t pid;      /* a process that is not the candidate's */
  int32_t on_load;  /* in the constructor; else at the first run */
};
