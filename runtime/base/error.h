/* SPDX-License-Identifier: Apache-2.0 */
/* What went wrong, said so that a user can act on it: what was being done, to what, and why it failed. */
#ifndef TPCK_RUNTIME_BASE_ERROR_H
#define TPCK_RUNTIME_BASE_ERROR_H

/*
 * Functions whose failure a user will read take a `struct tpck_error *err` last and return
 * `tpck_error_set(err, errno_value, "doing what to which: ...")`, which is -errno_value.
 * Everything else returns 0 or -errno. `err` may be NULL.
 */
struct tpck_error {
	int code; /* a positive errno value; 0 while nothing failed */
	char text[480];
};

/* Fills err (text is cut where it does not fit; strerror(code) is appended after ": " when code
 * is not 0) and returns -code, or -EINVAL if code is 0. Keeps errno. */
int tpck_error_set(struct tpck_error *err, int code, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#endif
