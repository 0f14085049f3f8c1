/* SPDX-License-Identifier: Apache-2.0 */
/** What a kernel's name says about its part in an iteration. */
#ifndef TPCK_RUNTIME_INFER_KERNEL_NAMES_H
#define TPCK_RUNTIME_INFER_KERNEL_NAMES_H

#include <stdbool.h>
#include <stdint.h>

enum tpck_role {
	TPCK_ROLE_UNKNOWN,   /**< no name */
	TPCK_ROLE_OTHER,     /**< work of a forward or backward pass */
	TPCK_ROLE_POINTWISE, /**< arithmetic that optimizers are made of, and others too */
	TPCK_ROLE_NEUTRAL,   /**< elementwise, fills, copies: may stand within an optimizer phase */
	TPCK_ROLE_OPTIMIZER, /**< a launch of an optimizer */
};

struct tpck_named_kernel {
	enum tpck_role role;
	const char *family;  /**< of an optimizer: "torch fused adam", "apex", "word adamw" ...; else NULL */
	bool preparing;      /**< by a word, of a pass or of what is done to gradients before the optimizer */
	bool backward;       /**< of a backward pass */
	bool gradient;       /**< of a backward pass, or has to do with gradients: the process trains */
	bool update;         /**< writes parameters; other launches of an optimizer may also be moving averages or clipping */
	bool fill;           /**< writes a constant: clears gradients, among others */
	bool list;           /**< applies a functor to lists of tensors */
	bool common;         /**< of an optimizer by its name, but other work with many tensors launches it too */
	bool addition;       /**< arithmetic that may move a parameter along a direction */
	bool checks;         /**< looks for values that are not finite: an optimizer's step may be left out behind it */
	bool layout_known;   /**< its parameters have a size that is known for the family */
};

/** name may be mangled or not, or NULL; param_bytes 0 means unknown and never makes a layout known. */
struct tpck_named_kernel tpck_name_kernel(const char *name, uint32_t param_bytes);

#endif
