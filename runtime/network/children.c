/* SPDX-License-Identifier: Apache-2.0 */
/* What a child sends to others that is forked while its parent runs forward: nothing of it is in the record, and the parent says that it may have been
 * sent for the second time. */
#include "config.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime/base/layout.h"
#include "runtime/base/log.h"
#include "runtime/network/network_private.h"

/* Of the process that runs forward and its children. */
static struct shared {
	_Atomic bool forwards;
	_Atomic int sent; /* 1: `peer` is being written, 2: it is there */
	struct tpck_record_peer peer;
} *shared;
_Atomic bool tpck_network_in_child;
static _Atomic bool any_before, tells; /* tells: a library says what it encrypts */
enum { FOLLOWED = 64 };
static struct {
	int fd; /* one more than the descriptor */
	struct tpck_record_peer peer;
} followed[FOLLOWED] TPCK_LARGE;
static tpck_spin lock;

void tpck_network_children_forward(void)
{
	void *at = shared ? shared : mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		return;
	shared = at;
	atomic_store(&shared->forwards, true);
}

void tpck_network_children_live(uint64_t step)
{
	char peer[TPCK_PEER_TEXT];

	if (!shared || !atomic_exchange(&shared->forwards, false) || atomic_load(&shared->sent) != 2)
		return;
	tpck_log_warn("on the way to step %llu a forked child sent something to %s that its first run may have sent already: what forked children say is not in the record",
		      (unsigned long long)step, tpck_peer_text(&shared->peer, peer));
}

void tpck_network_children_forked(void)
{
	atomic_store(&tpck_network_in_child, shared && atomic_load(&shared->forwards));
	atomic_store(&tells, false);
	tpck_whose_forked();
	atomic_store(&lock, 0);
}

static bool still(void)
{
	if (atomic_load(&shared->forwards))
		return true;
	atomic_store(&tpck_network_in_child, false);
	return false;
}

void tpck_network_child_connects(int fd, const struct sockaddr *address, socklen_t bytes, const void *caller)
{
	struct tpck_record_peer peer;
	enum tpck_whose whose;
	int saved = errno, type = 0;
	socklen_t type_bytes = sizeof type;

	if (!still() || (unsigned)fd >= TPCK_NETWORK_DESCRIPTORS || !tpck_peer_of(address, bytes, &peer) ||
	    getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_bytes) || type != SOCK_STREAM) {
		errno = saved;
		return;
	}
	whose = tpck_whose(&peer, true, caller);
	tpck_spin_lock(&lock);
	/* The parent's are none of this process's. */
	if (!atomic_exchange(&any_before, true))
		tpck_talks_none();
	for (int i = 0; i < FOLLOWED && (whose == TPCK_WHOSE_OTHER || whose == TPCK_WHOSE_AWAY); i++)
		if (!followed[i].fd || followed[i].fd == fd + 1) {
			followed[i].fd = fd + 1;
			followed[i].peer = peer;
			tpck_talk_bit(fd, true);
			break;
		}
	tpck_spin_unlock(&lock);
	errno = saved;
}

void tpck_network_child_closes(int fd)
{
	tpck_spin_lock(&lock);
	tpck_talk_bit(fd, false);
	for (int i = 0; i < FOLLOWED; i++)
		if (followed[i].fd == fd + 1)
			followed[i].fd = 0;
	tpck_spin_unlock(&lock);
}

void tpck_network_child_sends(int fd, const void *bytes, size_t count, bool told)
{
	/* Records of TLS are of types 20 to 23, and of version 3 (RFC 8446, 5.1). */
	bool record = count > 2 && ((const unsigned char *)bytes)[0] >= 20 && ((const unsigned char *)bytes)[0] <= 23 && ((const unsigned char *)bytes)[1] == 3;
	int none = 0;

	if (told)
		atomic_store(&tells, true);
	/* Of encrypted data only who encrypts it knows what it is; a handshake changes nothing. */
	else if (record && (((const unsigned char *)bytes)[0] != 23 || atomic_load(&tells)))
		return;
	if (!count || !still() || tpck_talk_is_safe(bytes, count))
		return;
	tpck_spin_lock(&lock);
	for (int i = 0; i < FOLLOWED; i++)
		if (followed[i].fd == fd + 1 && atomic_compare_exchange_strong(&shared->sent, &none, 1)) {
			shared->peer = followed[i].peer;
			atomic_store(&shared->sent, 2);
		}
	tpck_spin_unlock(&lock);
}
