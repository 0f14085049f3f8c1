/* SPDX-License-Identifier: Apache-2.0 */
/* libcudnn: what programs ask before they use it. The version is one that has no attention, which is not here either. */
#include <stddef.h>

#include "standin/standin.h"

STANDIN_API size_t cudnnGetVersion(void) { return 8800; }
STANDIN_API size_t cudnnGetCudartVersion(void) { return CUDA_VERSION; }
