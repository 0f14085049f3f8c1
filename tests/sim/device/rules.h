/* SPDX-License-Identifier: Apache-2.0 */
/* The table of kernels.rules, and its expressions. */
#ifndef TESTS_SIM_DEVICE_RULES_H
#define TESTS_SIM_DEVICE_RULES_H

#include "device/pseudo.h"

enum sim_how {
	SIM_HOW_MIX,
	SIM_HOW_FILL,
	SIM_HOW_COPY,
	SIM_HOW_SCALE,
	SIM_HOW_WHERE,
	SIM_HOW_MASK,
	SIM_HOW_EQUAL,
	SIM_HOW_ORDER,
	SIM_HOW_OR,
	SIM_HOW_AND,
	SIM_HOW_NOT,
	SIM_HOW_ABS,
	SIM_HOW_SUM,
	SIM_HOW_ADD,
	SIM_HOW_UNSCALE,
	SIM_HOW_AMP_UPDATE,
	SIM_HOW_FUSED
};

#define SIM_ITEMS 12

struct sim_rule {
	char *pattern; /* pieces between '*' that the demangled name has in this order */
	char *layout;  /* "params" or one of sim_layouts */
	enum sim_how how;
	char *out[SIM_ITEMS], *in[SIM_ITEMS], *scalar[SIM_ITEMS];
	char *out_type; /* of layouts that know their pointers: from an item without a parameter */
	char *in_type;
	bool positive;
	int line;
};

/* The first row that fits, or NULL. */
const struct sim_rule *sim_rule_find(const char *name);
/* Fills the plan from the rule's items. */
bool sim_rule_plan(struct sim_plan *p, const struct sim_rule *r);
/* ":bool", ":@1" (template argument of the pattern's last piece), ":in1", ":dispatch"; NONE when it says nothing. */
enum sim_type sim_rule_type(const struct sim_plan *p, const struct sim_rule *r, const char *text);

#endif
