/* SPDX-License-Identifier: Apache-2.0 */
/* Identity texts: whether two processes run the same program, and in plain words what differs. */
#ifndef TPCK_AGENT_PROGRAMS_IDENTITY_TEXT_H
#define TPCK_AGENT_PROGRAMS_IDENTITY_TEXT_H

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

/* What the identity texts of all ranks of a launch that are started alike have in common: the digest, as text, of one without its
 * line "rank". Forms, where several are listed, lie behind one another, each with its NUL. */
enum { IDENTITY_FORM = 33 };
void identity_form(const char *identity, char form[IDENTITY_FORM]);
/* The number of an identity's form among them, or -1. */
int identity_form_among(const char *identity, const char *forms, size_t size);

#endif
