#define _GNU_SOURCE
#include "digest/known.h"

#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <time.h>

#define TICK_NS 20000000ll /* two ticks of the slowest kernel clock */

struct known {
    uint64_t key;
    char *path; /* of the mount, the layer and the entry */
    struct stat info;
    int64_t body_at, share_at; /* when they were looked at; 0: not */
    struct body body;
    struct pair share;
    bool sealed; /* of a layer that does not change */
};

static struct {
    struct known *slot;
    size_t count, room; /* a power of two */
} table;

int64_t known_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int64_t ns(struct timespec time) { return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec; }

static uint64_t key_of(const struct tree *tree, int layer, const char *path) {
    uint64_t key = 0xcbf29ce484222325 ^ (uint64_t)tree->fd[layer];
    for (; *path; path++)
        key = (key ^ (uint8_t)*path) * 0x100000001b3;
    return key ? key : 1;
}

/* Layers are told apart by their descriptors, which pid 1 keeps as long as it lives. */
static struct known *look(const struct tree *tree, int layer, const char *path, uint64_t key) {
    (void)tree;
    (void)layer;
    for (size_t i = key & (table.room - 1); table.room && table.slot[i].key; i = (i + 1) & (table.room - 1))
        if (table.slot[i].key == key && !strcmp(table.slot[i].path, path))
            return &table.slot[i];
    return NULL;
}

static struct bunshin_error *grow(void) {
    size_t room = table.room ? table.room * 2 : 256;
    struct known *slot = calloc(room, sizeof *slot);
    if (!slot)
        return bunshin_error_no_memory();
    for (size_t i = 0; i < table.room; i++)
        if (table.slot[i].key) {
            size_t at = table.slot[i].key & (room - 1);
            while (slot[at].key)
                at = (at + 1) & (room - 1);
            slot[at] = table.slot[i];
        }
    free(table.slot);
    table.slot = slot;
    table.room = room;
    return NULL;
}

static bool same(const struct stat *a, const struct stat *b) {
    return a->st_ino == b->st_ino && a->st_dev == b->st_dev && a->st_mode == b->st_mode && a->st_nlink == b->st_nlink &&
           a->st_uid == b->st_uid && a->st_gid == b->st_gid && a->st_rdev == b->st_rdev && a->st_size == b->st_size &&
           ns(a->st_mtim) == ns(b->st_mtim) && ns(a->st_ctim) == ns(b->st_ctim);
}

static struct bunshin_error *place(const struct tree *tree, int layer, const char *path, const struct stat *info, struct known **ret) {
    uint64_t key = key_of(tree, layer, path);
    struct known *known = look(tree, layer, path, key);
    if (!known) {
        if (table.count * 4 >= table.room * 3)
            TRY(grow());
        size_t at = key & (table.room - 1);
        while (table.slot[at].key)
            at = (at + 1) & (table.room - 1);
        known = &table.slot[at];
        char *copy = strdup(path);
        if (!copy)
            return bunshin_error_no_memory();
        *known = (struct known){.key = key, .path = copy, .sealed = layer > 0};
        table.count++;
    }
    if (!same(&known->info, info)) {
        known->info = *info;
        known->body_at = known->share_at = 0;
    }
    *ret = known;
    return NULL;
}

void known_forget(void) {
    for (size_t i = 0; i < table.room; i++)
        if (table.slot[i].key && !table.slot[i].sealed)
            table.slot[i].body_at = table.slot[i].share_at = 0;
}

static bool settled(const struct stat *info, int64_t looked_at) { return looked_at > ns(info->st_ctim) + TICK_NS; }

static bool without_times(const struct tree *tree, int layer) {
    static struct {
        int fd;
        bool memory;
    } last = {-1, false};
    if (last.fd != tree->fd[layer]) {
        struct statfs system;
        last.fd = tree->fd[layer];
        last.memory = fstatfs(last.fd, &system) != 0 || system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC;
    }
    return last.memory;
}

struct bunshin_error *known_body(const struct tree *tree, int layer, const char *path, const struct stat *info, struct body *ret) {
    const struct known *known = look(tree, layer, path, key_of(tree, layer, path));
    if (known && known->body_at && same(&known->info, info)) {
        *ret = known->body;
        return NULL;
    }
    int64_t began = known_now();
    TRY(entry_body(tree->fd[layer], path, info, ret));
    /* Sealed layers do not change. */
    if (layer == 0 && (!settled(info, began) || (S_ISREG(info->st_mode) && without_times(tree, layer))))
        return NULL;
    struct known *kept;
    TRY(place(tree, layer, path, info, &kept));
    kept->body = *ret;
    kept->body_at = began;
    return NULL;
}

bool known_share(const struct tree *tree, int layer, const char *path, const struct stat *info, struct pair *ret) {
    const struct known *known = look(tree, layer, path, key_of(tree, layer, path));
    if (!known || !known->share_at || !same(&known->info, info))
        return false;
    *ret = known->share;
    return true;
}

struct bunshin_error *known_keep_share(const struct tree *tree, int layer, const char *path, const struct stat *info, int64_t began,
                                       const struct pair *share) {
    if (layer != 0 || !settled(info, began) || (S_ISREG(info->st_mode) && without_times(tree, layer)))
        return NULL;
    struct known *known;
    TRY(place(tree, layer, path, info, &known));
    known->share = *share;
    known->share_at = began;
    return NULL;
}
