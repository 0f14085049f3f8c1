/* SPDX-License-Identifier: Apache-2.0 */
/* What of an identity text (wire/message.h) does not depend on the user's key. */
#ifndef TPCK_RUNTIME_BASE_IDENTITY_NAMES_H
#define TPCK_RUNTIME_BASE_IDENTITY_NAMES_H

#include <stdint.h>

#define TPCK_IDENTITY_KEY_LINE "environment-key "

/* XXH3-64 of the text without its key line and without what follows the names of variables: the same on nodes that have other keys. */
uint64_t tpck_identity_names(const char *text);

#endif
