/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the threads of one block: a plain loop until one of them waits, fibers from there on. */
#ifndef TESTS_SIM_DEVICE_FIBER_H
#define TESTS_SIM_DEVICE_FIBER_H

#include <stdint.h>

/* Runs `entry` for every thread of the block described by simgpu_state; -1 if the threads wait for each other for ever. */
int sim_block_run(void (*entry)(void));

/* Forget the fibers of a block that was left by siglongjmp. */
void sim_block_abandon(void);

#endif
