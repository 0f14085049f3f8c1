/* SPDX-License-Identifier: Apache-2.0 */
/* Where the store's tiers are, and the memory tier, by what the settings say. */
#ifndef TPCK_RUNTIME_BASE_TIER_SETTINGS_H
#define TPCK_RUNTIME_BASE_TIER_SETTINGS_H

#include "runtime/base/settings.h"

enum { TPCK_TIERS_MAX = 4, TPCK_TIER_KIND = 8 };

/* Bytes of "node:", "site:" or another scheme at the begin of a tier; 0: it does not say its kind. */
size_t tpck_tiers_kind(const char *tier);
/* The schemes there are, by number. False: there is no such one. */
bool tpck_tier_scheme(unsigned index, char kind[TPCK_TIER_KIND]);
/* The list of tiers as it will be used: absolute, each once. Complaints. */
int tpck_tiers_settle(char *dir);
/* The same of one path. */
int tpck_tiers_absolute(char *path);
/* The memory tier's folder: the setting, or the one that tpck_door_memory() gives. A process gets the same one each time. */
void tpck_settings_shm(const struct tpck_settings *settings, char *path, size_t size);
/* Tiers of the store, the fastest first: TRANSPCKPT_DIR's, or one in the user's state folder. False: there is no
 * tier `index`. `kind` gets its scheme or, where the setting does not say, "". */
bool tpck_settings_tier(const struct tpck_settings *settings, unsigned index, char kind[TPCK_TIER_KIND], char *path,
			size_t size);
/* The tier that all nodes see, as far as the settings say: the first of kind "site", or the first. */
void tpck_settings_shared_tier(const struct tpck_settings *settings, char *path, size_t size);
/* Whether that one is on a disk or in memory of this node, by the kind of its file system. One of a kind that is not known may
 * be shared. */
bool tpck_settings_are_local(const struct tpck_settings *settings);
/* The folder that the store is in where no setting says. */
void tpck_settings_state(char *path, size_t size);
/* The same by what a user's environment says of XDG_STATE_HOME and HOME, or NULL. */
void tpck_settings_state_of(const char *state, const char *home, uid_t uid, char *path, size_t size);
/* The first one's folder. */
void tpck_settings_store(const struct tpck_settings *settings, char *path, size_t size);
/* A file of a job's in there; where the folder's path is not absolute it begins in `start_folder`. False: the path is too long. */
bool tpck_settings_store_file(const struct tpck_settings *settings, const char *start_folder, const char *job, const char *name, char *path, size_t size);

#endif
