/* SPDX-License-Identifier: Apache-2.0 */
/* Hosts, addresses and lists of nodes, as launchers, users and other agents write them. An input is lines, each of which is
 * taken for any of these; all of it for the lines of one agent. */
#include "config.h"

#include "tests/fuzz/fuzz.h"

#include "runtime/peer/address.h"
#include "runtime/peer/nodelist.h"
#include "runtime/peer/rendezvous.h"
#include "runtime/peer/transport.h"

enum { MOST = 100 };

static void take_name(void *context, const char *name)
{
	FUZZ_HOLDS(*name && strlen(name) < TPCK_NODELIST_NAME && ++*(size_t *)context <= MOST);
}

static void look_at(const char *text)
{
	char host[TPCK_HOST_NAME], printed[TPCK_TRANSPORT_ADDRESS];
	struct sockaddr_storage address, again;
	size_t names = 0;
	socklen_t bytes;
	uint16_t port;
	long long count;

	if (tpck_address_split(text, 1, host, &port, NULL) == 0)
		FUZZ_HOLDS(*host && strlen(host) < sizeof host && port);
	if (tpck_address_read(text, &address, &bytes) == 0) {
		uint16_t at = address.ss_family == AF_INET6 ? 7 : 9;

		(void)tpck_address_is_link_local((struct sockaddr *)&address);
		FUZZ_HOLDS(tpck_address_print((struct sockaddr *)&address, at, printed, sizeof printed));
		FUZZ_HOLDS(tpck_address_read(printed, &again, &bytes) == 0);
	}
	count = tpck_nodelist_each(text, MOST, take_name, &names);
	FUZZ_HOLDS(count < 0 ? names == 0 : (long long)names == (count < MOST ? count : MOST));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input input = {data, size};
	char first[TPCK_TRANSPORT_ADDRESS], *all = fuzz_text(&input, size), *line;
	struct tpck_local local[8];

	(void)tpck_address_choose(all, NULL);
	FUZZ_HOLDS(tpck_address_chosen(local, 8) <= tpck_address_local(local, 8));
	(void)tpck_address_choose("", NULL);
	(void)tpck_rendezvous_answers(all, first, sizeof first);
	(void)tpck_rendezvous_has(all, "10.0.0.1:47117");
	free(all);
	input = (struct fuzz_input){data, size};
	while ((line = fuzz_line(&input, '\n'))) {
		look_at(line);
		free(line);
	}
	return 0;
}
