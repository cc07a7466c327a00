/* machine_memory.h: how much memory this machine has. */
#ifndef TOKEND_MACHINE_MEMORY_H
#define TOKEND_MACHINE_MEMORY_H

#include <stdint.h>

/* Bytes of memory of the machine, or of the control group, if that is less. */
uint64_t memory_of_machine(void);

#endif
