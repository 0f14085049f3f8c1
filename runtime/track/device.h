/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The interface through which the engine touches a device. hooks/cuda_device.c fills it in with
 * the driver's real calls, a unit test with its own. Every function returns 0 or a negative errno
 * value and is called with the application's context current or sets it itself; none is called
 * while a stream captures, but those marked *.
 */
#ifndef TPCK_RUNTIME_TRACK_DEVICE_H
#define TPCK_RUNTIME_TRACK_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Opaque handles of the driver's: CUstream, CUevent. */
typedef void *tpck_stream_handle;
typedef void *tpck_event_handle;

/* What programs compute by. */
struct tpck_device_traits {
	uint32_t count;            /* devices that the process sees */
	uint32_t capability;       /* 10 times major, and minor */
	uint32_t multiprocessors, unused;
	uint64_t memory;           /* bytes */
};

struct tpck_device {
	/* Reserves bytes of address space at hint exactly; -EADDRINUSE where the driver gives another. */
	int (*reserve)(int device, uint64_t hint, uint64_t bytes);
	/* Backs [address, address + bytes), a multiple of granule, with memory of its own; -ENOMEM. */
	int (*back)(int device, uint64_t address, uint64_t bytes);
	int (*unback)(int device, uint64_t address, uint64_t bytes);
	/* Another device may use it, too. */
	int (*share)(int with, uint64_t address, uint64_t bytes);
	uint64_t granule;

	int (*current)(void);                         /* * ordinal of the calling thread's device, or -errno */
	int (*describe)(int device, struct tpck_device_traits *);
	/* * The path of the driver's library, and the version of CUDA that it has, 13000; 0 where it does not say. */
	void (*driver)(char *path, size_t size, uint32_t *version);
	int (*context_save)(void **context);          /* * the calling thread's current context */
	int (*context_use)(void *context);            /* * makes it current in the calling thread */
	int (*synchronize)(void);                     /* the whole context */
	int (*stream_synchronize)(tpck_stream_handle);
	int (*stream_create)(tpck_stream_handle *);   /* non-blocking */
	int (*event_create)(tpck_event_handle *, bool timed);
	int (*event_record)(tpck_event_handle, tpck_stream_handle);
	int (*event_synchronize)(tpck_event_handle);
	bool (*event_passed)(tpck_event_handle);      /* false, too, where it cannot be told */
	int (*event_destroy)(tpck_event_handle);
	int (*stream_wait_event)(tpck_stream_handle, tpck_event_handle);
	/* Nanoseconds between two timed events that have been passed; 0: not known. */
	uint64_t (*event_elapsed)(tpck_event_handle from, tpck_event_handle to);
	int (*host_alloc)(void **host, uint64_t *device_address, size_t bytes); /* pinned */
	int (*host_free)(void *host);
	int (*host_register)(void *host, size_t bytes);
	int (*host_unregister)(void *host);
	int (*copy_from_device)(void *host, uint64_t address, size_t bytes, tpck_stream_handle); /* queued */
	int (*copy_to_device)(uint64_t address, const void *host, size_t bytes);                 /* done on return */
	bool (*is_capturing)(tpck_stream_handle);     /* * */
	/* Tells the engine of module variables that it does not know yet: of `all`, or of those that can be asked for at once. Whether it knows all then. */
	bool (*variables)(bool all);
	/* Loads the modules that the next such call would load. By one thread. Whether there may be more soon. */
	bool (*variables_ahead)(void);
	/* Queues the digest kernel (runtime/base/block_digest.h) over `count` units whose descriptions lie at the
	 * device-visible address `units`; sums are added to the 64-bit words at `results`, which are
	 * zeroed first. -ENOTSUP where there is no kernel for this device. */
	int (*digest)(uint64_t units, uint32_t count, uint64_t results, uint32_t result_count, tpck_stream_handle);
	/* Device memory of our own, past the arena. */
	int (*device_alloc)(uint64_t *address, size_t bytes);
	int (*device_free)(uint64_t address);
	/* Readies the digest kernel in the current context. -ENOTSUP. */
	int (*digest_open)(const char *library, const char *setting);
};

#endif
