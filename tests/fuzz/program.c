/* SPDX-License-Identifier: Apache-2.0 */
/* What is kept of a program: its state, and its marker. An input is the text of either; a NUL divides two states. */
#include "config.h"

#include "tests/fuzz/fuzz.h"

#include "runtime/store/program.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct tpck_program *program = tpck_program_new("0123456789abcdef");
	struct fuzz_input input = {data, size};
	char *text;

	FUZZ_HOLDS(program);
	while ((text = fuzz_line(&input, '\0'))) {
		(void)tpck_program_parse_mark(text);
		tpck_program_parse_state(program, text);
		free(text);
	}
	for (uint64_t i = 0; i < 4; i++) {
		struct tpck_point point = {i, 2 * i};

		(void)tpck_program_allows(program, &point);
		(void)tpck_program_tries(program, &point);
	}
	(void)tpck_program_loops(program);
	tpck_program_resumed(program, 3, 4);
	(void)tpck_program_died(program, &(struct tpck_point){3, 4}, TPCK_DEATH_NEAR);
	tpck_program_ended(program, 2);
	tpck_program_free(program);
	return 0;
}
