/*
 * The keeper: one small process beside each owner. It makes the workspaces (a fork of a small process is cheap), waits for
 * them, and clears up what they leave: directories, cgroups. It watches its owner by pidfd and by the end of its socket:
 * when the owner is gone, however it went, every workspace ends and the state directory is removed.
 * Single-threaded; all state belongs to keeper_main(). If the keeper itself dies, the kernel kills its workspaces
 * (PR_SET_PDEATHSIG), and the next owner's start-up removes the unlocked state directory.
 */
#ifndef BUNSHIN_KEEPER_KEEPER_H
#define BUNSHIN_KEEPER_KEEPER_H

#include <stdbool.h>
#include <sys/types.h>

#include "common/error.h"
#include "common/wire.h"

#define KEEPER_CGROUPS 4

struct cgroup_set {
    int count;
    char *path[KEEPER_CGROUPS];
    int memory_fd; /* its directory of the memory controller, or -1 */
};

/* cgroup.c: limits through cgroup v1 or v2 where this process may make groups. Missing rights are no error: see `ret`. */
struct bunshin_error *cgroup_create(const char *name, const char *memory, const char *pids, struct cgroup_set *ret) MUST_CHECK;
bool cgroup_add(const struct cgroup_set *set, pid_t pid);
void cgroup_destroy(struct cgroup_set *set);
void cgroup_remove_stale(void);
/* "v2", "v1" or "none" for a controller, found by trying. */
const char *cgroup_support(const char *controller);

/* spawn.c: clones pid 1 of a new workspace, writes its id maps, puts it into its groups. */
struct bunshin_error *spawn(const struct wire *request, const struct cgroup_set *groups, pid_t *ret) MUST_CHECK;
/* Enters the user namespace in which an ordinary user's workspaces are made; nothing to do for root. */
struct bunshin_error *spawn_prepare(void) MUST_CHECK;

/* remove.c: deletes a tree whatever its modes; false when something stayed. */
bool remove_tree(const char *path);
bool remove_tree_at(int directory, const char *name);

/* priority.c: lets a workspace run only where nobody else wants the processor, or ends that; whether it could be ended. */
struct bunshin_error *background_set(pid_t root, const struct cgroup_set *groups, bool on) MUST_CHECK;
bool background_can_end(void);

/* copy.c: a file of a layer into another file system, whatever its kind; false where that fails. For a process that ends soon. */
struct stat;
bool copy_file_at(int from, int to, const char *name, const struct stat *info);

/* merge.c: owner, mode, times and extended attributes, from one open file to another. */
bool copy_attributes(int from, int to, const struct stat *info);
/* merge.c: makes one layer (a directory) of several, top first; apart: of copies, not links. False when something failed. */
bool merge_layers(const char *target, const char *const *layers, size_t count, bool apart);

int keeper_main(int socket, pid_t owner, const char *state_path);

#endif
