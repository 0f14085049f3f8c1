/* SPDX-License-Identifier: Apache-2.0 */
/* Staging an offer: resume.image and the log up to the cut, inside the new session's folder. */
#ifndef TPCK_RUNTIME_STORE_STAGE_H
#define TPCK_RUNTIME_STORE_STAGE_H

#include "runtime/store/manifest.h"
#include "runtime/store/memory_tier.h"

/* "SESSION/resume.image": what its process goes on from. */
#define TPCK_RESUME_IMAGE "resume.image"

/* From another session of the memory tier: hard links, and a private copy of the segment that the
 * cut is in. image_path must be committed and checked. */
int tpck_stage_memory(const char *from_session, const char *image_path, const struct tpck_cut *cut,
		      const char *to_session, struct tpck_error *err);
/* What the session that the step is of had behind it, where it is in memory still: what was said, started and written there. */
void tpck_stage_behind(const char *from_session, const struct tpck_cut *cut, const char *to_session);
/* A session left no snapshot: what its processes wrote to files, and what it started and said to others behind the cut that it had gone on from, is known from then on
 * in the session that it had gone on from, for whoever does so next. */
void tpck_stage_hand_back(const char *session, uint64_t generation, const struct tpck_cut *cut, const char *to_session);
/* From the store: every chunk is read, compared with its digest and laid down. -EBADMSG: a chunk is
 * not what the manifest says; the checkpoint cannot be trusted. */
int tpck_stage_durable(struct tpck_tier *tier, const struct tpck_manifest *manifest,
		       const struct tpck_member *member, const char *to_session, struct tpck_error *err);
/* Whether a member is of the shape that an image and a log can be made of. */
int tpck_stage_check(const struct tpck_member *member, struct tpck_error *err);
/* Data, index and log being in place: chunk table, header and footer of an image as the manifest says, committed. */
void tpck_stage_header(struct tpck_image *image, const struct tpck_manifest *manifest, const struct tpck_member *member);
/* Takes away what a failed staging left. */
void tpck_stage_clear(const char *to_session);

#endif
