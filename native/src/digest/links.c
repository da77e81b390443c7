#define _GNU_SOURCE
#include "digest/links.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "digest/entry.h"

struct group {
    uint64_t inode;
    struct sum names;
};

static struct listing { /* of one layer, by the descriptor that pid 1 keeps of it */
    int fd;
    struct group *group;
    size_t count, room;
    struct listing *next;
} *listings;

static struct bunshin_error *add(struct listing *listing, uint64_t inode, const char *path) {
    struct hash_state state;
    hash_init(&state);
    hash_text(&state, path, strlen(path));
    struct hash hash = hash_end(&state);
    if (listing->count == listing->room) {
        listing->room = listing->room ? listing->room * 2 : 64;
        struct group *grown = realloc(listing->group, listing->room * sizeof *grown);
        if (!grown)
            return bunshin_error_no_memory();
        listing->group = grown;
    }
    listing->group[listing->count] = (struct group){.inode = inode};
    sum_add(&listing->group[listing->count++].names, &hash);
    return NULL;
}

static struct bunshin_error *collect(struct listing *listing, int directory, char *path, size_t length) {
    int fd = openat(directory, length ? path : ".", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *stream = fd < 0 ? NULL : fdopendir(fd);
    struct bunshin_error *error = NULL;
    if (!stream) {
        if (fd >= 0)
            close(fd);
        return NULL;
    }
    for (struct dirent *entry; !error && (entry = readdir(stream));) {
        struct stat info;
        size_t size = strlen(entry->d_name);
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..") || length + size + 2 > ENTRY_PATH ||
            fstatat(fd, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        snprintf(path + length, ENTRY_PATH - length, "%s%s", length ? "/" : "", entry->d_name);
        if (S_ISDIR(info.st_mode))
            error = collect(listing, directory, path, strlen(path));
        else if (info.st_nlink > 1 && !entry_is_whiteout(&info)) /* whiteouts are links of one inode */
            error = add(listing, info.st_ino, path);
        path[length] = '\0';
    }
    closedir(stream);
    return error;
}

static int by_inode(const void *a, const void *b) {
    uint64_t one = ((const struct group *)a)->inode, other = ((const struct group *)b)->inode;
    return one < other ? -1 : one > other;
}

static struct bunshin_error *listing_of(int fd, struct listing **ret) {
    for (struct listing *at = listings; at; at = at->next)
        if (at->fd == fd)
            return *ret = at, NULL;
    struct listing *made = calloc(1, sizeof *made);
    char path[ENTRY_PATH] = "";
    if (!made)
        return bunshin_error_no_memory();
    made->fd = fd;
    struct bunshin_error *error = collect(made, fd, path, 0);
    if (error) {
        free(made->group);
        free(made);
        return error;
    }
    if (made->count)
        qsort(made->group, made->count, sizeof *made->group, by_inode);
    size_t kept = 0;
    for (size_t i = 0; i < made->count; i++)
        if (kept && made->group[kept - 1].inode == made->group[i].inode)
            sum_join(&made->group[kept - 1].names, &made->group[i].names);
        else
            made->group[kept++] = made->group[i];
    made->count = kept;
    made->next = listings;
    *ret = listings = made;
    return NULL;
}

struct bunshin_error *links_group(const struct tree *tree, int layer, uint64_t inode, struct sum *ret) {
    struct listing *listing;
    struct group key = {.inode = inode};
    TRY(listing_of(tree->fd[layer], &listing));
    const struct group *found = listing->count ? bsearch(&key, listing->group, listing->count, sizeof key, by_inode) : NULL;
    *ret = found ? found->names : (struct sum){0};
    return NULL;
}

void links_forget(const struct tree *tree, int layer) {
    for (struct listing **at = &listings; *at; at = &(*at)->next)
        if ((*at)->fd == tree->fd[layer]) {
            struct listing *old = *at;
            *at = old->next;
            free(old->group);
            free(old);
            return;
        }
}
