/* SPDX-License-Identifier: Apache-2.0 */
/* Names that a library exports, as `transpckpt doctor --device` reads them. An input is an ELF file. */
#include "config.h"

#include "tests/fuzz/fuzz.h"

#include "tools/cli/device/exported.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct exported exported;

	if (exported_parse(data, size, &exported) == 0) {
		FUZZ_HOLDS(exported.count && exported_has(&exported, exported.names[0]));
		(void)exported_has(&exported, "cuInit");
	}
	exported_free(&exported);
	return 0;
}
