/* SPDX-License-Identifier: Apache-2.0 */
/* Every probe, by the file that has it. */
#ifndef TPCK_TOOLS_CLI_DEVICE_PROBES_H
#define TPCK_TOOLS_CLI_DEVICE_PROBES_H

/* libcuda.c */
void probe_driver_run(void);
/* entry_points.c */
void probe_calls_run(void);
void probe_doors_run(void);
/* virtual_memory.c */
void probe_address_run(void);
void probe_mapped_run(void);
void probe_waits_on_memory_run(void);
/* host_register.c */
void probe_image_run(void);
/* digest_kernel.c */
void probe_names_run(void);
void probe_digest_run(void);
/* fence.c */
void probe_events_run(void);
void probe_first_launch_run(void);
void probe_many_launches_run(void);
void probe_pageable_run(void);
void probe_memory_calls_run(void);
void probe_waiting_run(void);

#endif
