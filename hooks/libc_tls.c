/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hooks of TLS. What comes by an encrypted connection means the same once more only where the program's end of the handshake is the same:
 * the numbers that OpenSSL draws by chance are drawn as getrandom()'s are, through RAND_METHOD (RAND_set_rand_method(3ssl)), which asks the library's own
 * generator behind it. It is told to from the first connection on that leaves the job. SSL_write() and SSL_read() are hooked to see
 * whether a request changes something, and whether it has been answered: what comes by such a connection may be part of the handshake, too.
 */
#include "config.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "hooks/hooks.h"
#include "hooks/libc.h"
#include "runtime/base/layout.h"
#include "runtime/base/log.h"
#include "runtime/engine/engine.h"
#include "runtime/network/network.h"
#include "shim/driver.h"

/* RAND_METHOD of openssl/rand.h, the same since OpenSSL 1.1.0. */
struct method {
	int (*seed)(const void *bytes, int count);
	int (*bytes)(unsigned char *bytes, int count);
	void (*cleanup)(void);
	int (*add)(const void *bytes, int count, double entropy);
	int (*pseudorand)(unsigned char *bytes, int count);
	int (*status)(void);
};

/* A process may have several OpenSSLs: Python's, and others that packages bring. */
enum { CRYPTOS = 4, NAME = 256, LOGGED = 16 << 10 };
static struct crypto {
	char name[NAME];
	const struct method *real;
	struct method ours;
} cryptos[CRYPTOS] TPCK_LARGE;
static unsigned cryptos_count;
static tpck_spin lock;

static int draw_in_child(const struct crypto *from, unsigned char *bytes, int count)
{
	uint32_t number = 0;
	int drawn;

	if (tpck_network_child_draws(bytes, (size_t)count, &number))
		return 1;
	drawn = from->real->bytes(bytes, count);
	if (drawn == 1)
		tpck_network_child_drawn(bytes, (size_t)count, number);
	return drawn;
}

static int draw(const struct crypto *from, unsigned char *bytes, int count)
{
	struct tpck_thread *self = count > 0 && count <= LOGGED ? tpck_engine_enter() : NULL;
	uint32_t number;
	int drawn;

	if (atomic_load_explicit(&tpck_network_in_child, memory_order_relaxed) && count > 0 && count <= LOGGED) {
		if (self)
			tpck_engine_leave(self);
		return draw_in_child(from, bytes, count);
	}
	if (!self)
		return from->real->bytes(bytes, count);
	if (tpck_engine_drawn_answer(self, bytes, (size_t)count, &number)) {
		tpck_engine_leave(self);
		return 1;
	}
	drawn = from->real->bytes(bytes, count);
	if (drawn == 1)
		tpck_engine_drawn_note(self, bytes, (size_t)count, number);
	/* What a program that was started draws is in the record of who has started it, too. */
	if (drawn == 1 && tpck_network_is_started() && !tpck_network_child_draws(bytes, (size_t)count, &number))
		tpck_network_child_drawn(bytes, (size_t)count, number);
	tpck_engine_leave(self);
	return drawn;
}

#define DRAWS(n)                                                      \
	static int draw_##n(unsigned char *bytes, int count)          \
	{                                                             \
		return draw(&cryptos[n], bytes, count);               \
	}
DRAWS(0)
DRAWS(1)
DRAWS(2)
DRAWS(3)

static int (*draw_of(unsigned number))(unsigned char *, int)
{
	switch (number) {
	case 0:
		return draw_0;
	case 1:
		return draw_1;
	case 2:
		return draw_2;
	default:
		return draw_3;
	}
}

/* The names of libraries that are not known yet. */
struct found {
	char name[CRYPTOS][NAME];
	unsigned count;
};

static int look(struct dl_phdr_info *info, size_t size, void *into)
{
	struct found *found = into;
	const char *slash = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;

	(void)size;
	if (!slash || strncmp(slash + 1, "libcrypto", 9) != 0 || strlen(info->dlpi_name) >= NAME)
		return 0;
	for (unsigned i = 0; i < cryptos_count; i++)
		if (strcmp(cryptos[i].name, info->dlpi_name) == 0)
			return 0;
	if (found->count < CRYPTOS)
		strcpy(found->name[found->count++], info->dlpi_name);
	return 0;
}

/* The lock is held. One that the program has given a generator of its own to is left alone. */
static void take(const char *name)
{
	struct crypto *crypto = &cryptos[cryptos_count];
	const struct method *(*of_openssl)(void), *(*now)(void);
	int (*set)(const struct method *);
	void *library = tpck_real_dlopen(name, RTLD_LAZY | RTLD_NOLOAD);

	if (!library)
		return;
	of_openssl = (const struct method *(*)(void))tpck_real_dlsym(library, "RAND_OpenSSL");
	now = (const struct method *(*)(void))tpck_real_dlsym(library, "RAND_get_rand_method");
	set = (int (*)(const struct method *))tpck_real_dlsym(library, "RAND_set_rand_method");
	strcpy(crypto->name, name);
	if (of_openssl && now && set && of_openssl() && now() == of_openssl()) {
		crypto->real = of_openssl();
		crypto->ours = *crypto->real;
		crypto->ours.bytes = crypto->ours.pseudorand = draw_of(cryptos_count);
		if (set(&crypto->ours) == 1)
			tpck_log_debug("random numbers of %s go into the record", name);
	}
	cryptos_count++;
}

void tpck_hooks_tls(void)
{
	struct found found = {.count = 0};
	int saved = errno;

	dl_iterate_phdr(look, &found);
	if (found.count) {
		tpck_spin_lock(&lock);
		for (unsigned i = 0; i < found.count && cryptos_count < CRYPTOS; i++) {
			bool known = false;

			for (unsigned k = 0; k < cryptos_count; k++)
				known |= strcmp(cryptos[k].name, found.name[i]) == 0;
			if (!known)
				take(found.name[i]);
		}
		tpck_spin_unlock(&lock);
	}
	errno = saved;
}

void tpck_hooks_tls_forked(void)
{
	atomic_store(&lock, 0);
}

/* ---- what is said ------------------------------------------------------------------------------------- */

/* The function of this name that the caller means, in whose library's own scope it is. Nothing is found there only where the caller is not the
 * library's, and has found the name in the global scope. */
static void *meant(const char *symbol, const void *caller)
{
	Dl_info info;
	void *library = dladdr(caller, &info) ? tpck_real_dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD) : NULL, *found = NULL;

	if (library) {
		found = tpck_real_dlsym(library, symbol);
		dlclose(library);
	}
	if (!found)
		found = tpck_real_dlsym(RTLD_NEXT, symbol);
	return found;
}

/* Callers and what they mean, as asking takes the loader's lock. */
enum { CALLERS = 32 };
static struct caller {
	_Atomic(const void *) from;
	_Atomic(void *) means;
	_Atomic(void *) descriptor;
} callers[CALLERS] TPCK_LARGE;

static void *function_of(const char *symbol, const void *from, int (**descriptor)(const void *))
{
	struct caller *at = &callers[((uintptr_t)from >> 4) % CALLERS];
	void *means;

	if (atomic_load_explicit(&at->from, memory_order_acquire) == from) {
		means = atomic_load(&at->means);
		*descriptor = (int (*)(const void *))atomic_load(&at->descriptor);
		if (atomic_load_explicit(&at->from, memory_order_acquire) == from)
			return means;
	}
	means = meant(symbol, from);
	*descriptor = (int (*)(const void *))meant("SSL_get_fd", from);
	atomic_store(&at->from, NULL);
	atomic_store(&at->means, means);
	atomic_store(&at->descriptor, (void *)*descriptor);
	atomic_store_explicit(&at->from, from, memory_order_release);
	return means;
}

/* The descriptor of a session, where it is a connection that is followed, or -1. */
static int followed(int (*descriptor)(const void *), const void *session)
{
	int fd = descriptor && atomic_load_explicit(&tpck_network_any, memory_order_relaxed) ? descriptor(session) : -1;

	return fd >= 0 && tpck_network_has(fd) ? fd : -1;
}

static void says(int (*descriptor)(const void *), const void *session, const void *bytes, size_t count)
{
	int saved = errno, fd = followed(descriptor, session);

	if (fd >= 0 && count)
		tpck_network_says(fd, bytes, count);
	errno = saved;
}

static void hears(int (*descriptor)(const void *), const void *session, const void *bytes, size_t count)
{
	int saved = errno, fd = followed(descriptor, session);

	if (fd >= 0)
		tpck_network_hears(fd, bytes, count);
	errno = saved;
}

int SSL_write(void *session, const void *bytes, int count);
TPCK_EXPORT int SSL_write(void *session, const void *bytes, int count)
{
	int (*descriptor)(const void *);
	int (*real)(void *, const void *, int) = (int (*)(void *, const void *, int))function_of("SSL_write", __builtin_return_address(0), &descriptor);

	if (!real) {
		errno = ENOSYS;
		return -1;
	}
	says(descriptor, session, bytes, count > 0 ? (size_t)count : 0);
	return real(session, bytes, count);
}

int SSL_write_ex(void *session, const void *bytes, size_t count, size_t *written);
TPCK_EXPORT int SSL_write_ex(void *session, const void *bytes, size_t count, size_t *written)
{
	int (*descriptor)(const void *);
	int (*real)(void *, const void *, size_t, size_t *) =
		(int (*)(void *, const void *, size_t, size_t *))function_of("SSL_write_ex", __builtin_return_address(0), &descriptor);

	if (!real) {
		errno = ENOSYS;
		return 0;
	}
	says(descriptor, session, bytes, count);
	return real(session, bytes, count, written);
}

int SSL_read(void *session, void *bytes, int count);
TPCK_EXPORT int SSL_read(void *session, void *bytes, int count)
{
	int (*descriptor)(const void *), got;
	int (*real)(void *, void *, int) = (int (*)(void *, void *, int))function_of("SSL_read", __builtin_return_address(0), &descriptor);

	if (!real) {
		errno = ENOSYS;
		return -1;
	}
	got = real(session, bytes, count);
	if (got > 0)
		hears(descriptor, session, bytes, (size_t)got);
	return got;
}

int SSL_read_ex(void *session, void *bytes, size_t count, size_t *got);
TPCK_EXPORT int SSL_read_ex(void *session, void *bytes, size_t count, size_t *got)
{
	int (*descriptor)(const void *), result;
	int (*real)(void *, void *, size_t, size_t *) =
		(int (*)(void *, void *, size_t, size_t *))function_of("SSL_read_ex", __builtin_return_address(0), &descriptor);

	if (!real) {
		errno = ENOSYS;
		return 0;
	}
	result = real(session, bytes, count, got);
	if (result > 0 && got)
		hears(descriptor, session, bytes, *got);
	return result;
}
