/* SPDX-License-Identifier: Apache-2.0 */
/* Identity texts: whether two processes run the same program, and in plain words what differs. */
#ifndef TPCK_TOOLS_AGENT_IDENTITY_H
#define TPCK_TOOLS_AGENT_IDENTITY_H

#include <stdbool.h>
#include <stddef.h>

enum identity_relation {
	IDENTITY_SAME,
	IDENTITY_CHANGED, /* the same program, started differently: `what` says how */
	IDENTITY_OTHER,   /* another executable or script */
	IDENTITY_APART,   /* another rank, process of the rank, user or job: nothing to say */
};

/* what: "argument 4 is '200', was '100'". */
enum identity_relation identity_compare(const char *now, const char *was, char *what, size_t size);

#endif
