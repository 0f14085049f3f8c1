/* SPDX-License-Identifier: Apache-2.0 */
/* The programs that the agent has met, by their identity texts (identity_text.h). */
#ifndef TPCK_AGENT_PROGRAMS_MET_PROGRAMS_H
#define TPCK_AGENT_PROGRAMS_MET_PROGRAMS_H

#include "runtime/base/error.h"
#include "runtime/store/program.h"

/* The program with this identity; one structure each, never freed, which locks itself. NULL: what is noted of it cannot be read. Any thread. */
struct tpck_program *program_of(const char *identity, struct tpck_error *err);

#endif
