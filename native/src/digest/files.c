/*
 * Files: a sum over every path at which the workspace's view differs from the image's. It grows layer by layer: what a
 * layer adds is, for each path that it touches, the new difference less the one that was there below it. So the sum of
 * sealed layers, once known, never has to be found out again, and a digest costs what the top layer holds.
 *
 * A path counts only if its directory is there: a removed tree is one absent path, however it was removed, and a
 * directory that was removed and made again is the sum of what is missing in it.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "digest/digest.h"
#include "digest/entry.h"
#include "digest/known.h"
#include "digest/links.h"

enum view { NEW, OLD, BASE, VIEWS }; /* with the layer at hand, without it, and the image alone */

struct frame { /* a directory: which layers show through in each view */
    const struct frame *parent;
    bool there[VIEWS];
    bool sees[VIEWS][FILES_LAYERS];
};

struct found {
    int layer; /* -1: absent */
    struct stat info;
};

struct walk {
    struct digest *digest;
    const struct tree *tree;
    int layer; /* whose part is being added */
    struct pair sum;
    uint64_t changed;
    char path[ENTRY_PATH]; /* relative to the mount, of the entry at hand; "." for the mount itself */
};

static int first_of(const struct walk *walk, enum view view) {
    return view == NEW ? walk->layer : view == OLD ? walk->layer + 1 : walk->tree->own;
}

static void find(const struct walk *walk, const struct frame *frame, enum view view, const char *path, struct found *ret) {
    ret->layer = -1;
    for (int i = first_of(walk, view); frame->there[view] && i < walk->tree->count; i++)
        if (frame->sees[view][i] && fstatat(walk->tree->fd[i], path, &ret->info, AT_SYMLINK_NOFOLLOW) == 0) {
            ret->layer = entry_is_whiteout(&ret->info) ? -1 : i;
            return;
        }
}

/* ---- one entry ---- */

/* Whether bytecode is of the source that lies beside it in this view, as Python asks. */
static bool matches_source(const struct walk *walk, const struct frame *frame, enum view view, const char *path, const struct body *body) {
    char source[ENTRY_PATH];
    const char *name = strrchr(path, '/') + 1, *place = name - sizeof "__pycache__", *dot = strchr(name, '.');
    size_t before = place < path ? 0 : (size_t)(place - path);
    if (!frame->parent || !dot)
        return false;
    snprintf(source, sizeof source, "%.*s%.*s.py", (int)before, path, (int)(dot - name), name);
    struct found found;
    find(walk, frame->parent, view, source, &found);
    return found.layer >= 0 && S_ISREG(found.info.st_mode) && (uint32_t)found.info.st_mtim.tv_sec == body->source_time &&
           (uint32_t)found.info.st_size == body->source_size;
}

/* What an entry is, without its path and times. */
static struct bunshin_error *entry_hash(struct walk *walk, const struct frame *frame, enum view view, const struct found *found,
                                        struct hash *ret, bool *ret_of_others) {
    const struct stat *info = &found->info;
    struct body body;
    struct hash_state state;
    TRY(known_body(walk->tree, found->layer, walk->path, info, &body));
    if (body.large)
        TRY(digest_unique(walk->digest, "files of more than 64 MB"));
    hash_init(&state);
    hash_number(&state, info->st_mode);
    hash_number(&state, (uint64_t)info->st_uid << 32 | info->st_gid);
    hash_update(&state, body.hash.bytes, HASH_SIZE);
    bool linked = found->layer < walk->tree->own && !S_ISDIR(info->st_mode) && info->st_nlink > 1;
    if (body.compiled) {
        /* Where they do not match, nobody asks what they were: the next import writes it anew. */
        hash_number(&state, matches_source(walk, frame, view, walk->path, &body));
    }
    if (linked) {
        struct sum group;
        TRY(links_group(walk->tree, found->layer, info->st_ino, &group));
        hash_update(&state, &group, sizeof group);
    }
    *ret = hash_end(&state);
    *ret_of_others = body.compiled || linked;
    return NULL;
}

static struct hash at_path(const struct walk *walk, const char *what, const struct hash *entry, const struct stat *info) {
    struct hash_state state;
    hash_init(&state);
    hash_text(&state, walk->tree->mount, strlen(walk->tree->mount));
    hash_text(&state, walk->path, strlen(walk->path));
    hash_text(&state, what, strlen(what));
    if (entry)
        hash_update(&state, entry->bytes, HASH_SIZE);
    if (info) {
        hash_number(&state, (uint64_t)info->st_mtim.tv_sec);
        hash_number(&state, (uint64_t)info->st_mtim.tv_nsec);
        if (!S_ISDIR(info->st_mode)) {
            hash_number(&state, (uint64_t)info->st_ctim.tv_sec);
            hash_number(&state, (uint64_t)info->st_ctim.tv_nsec);
        }
    }
    return hash_end(&state);
}

static bool may_be_equal(const struct stat *a, const struct stat *b) {
    return a->st_mode == b->st_mode && a->st_uid == b->st_uid && a->st_gid == b->st_gid &&
           (!S_ISREG(a->st_mode) || a->st_size == b->st_size);
}

struct share { /* what a path adds */
    struct hash loose, strict;
    bool has_loose, has_strict;
};

/* The difference that a path makes in a view. ret_of_others: it may change although the entry does not. */
static struct bunshin_error *share_of(struct walk *walk, const struct frame *frame, enum view view, const struct found *found,
                                      const struct found *base, struct share *ret, bool *ret_of_others) {
    *ret = (struct share){0};
    if (!frame->there[view])
        return NULL;
    if (found->layer < 0) {
        if (base->layer < 0)
            return NULL;
        ret->loose = ret->strict = at_path(walk, "absent", NULL, NULL);
        ret->has_loose = ret->has_strict = true;
        return NULL;
    }
    bool own = found->layer < walk->tree->own, others = false, unreadable = false;
    struct hash entry, below;
    if (!own && !normal_is_candidate(walk->path))
        return NULL; /* the image's own */
    TRY(entry_hash(walk, frame, view, found, &entry, &others));
    *ret_of_others |= others;
    bool equal = base->layer >= 0 && (may_be_equal(&found->info, &base->info) || others);
    if (equal) {
        struct bunshin_error *error = entry_hash(walk, frame, BASE, base, &below, &others);
        unreadable = error != NULL; /* what the user may not read is not what the user has written */
        bunshin_error_destroy(error);
        equal = !unreadable && hash_equal(&entry, &below);
    }
    if (!equal) {
        ret->loose = at_path(walk, "entry", &entry, NULL);
        ret->has_loose = true;
    }
    bool directory = S_ISDIR(found->info.st_mode);
    if (own && (!equal || !directory || found->info.st_mtim.tv_sec != base->info.st_mtim.tv_sec ||
                found->info.st_mtim.tv_nsec != base->info.st_mtim.tv_nsec)) {
        ret->strict = at_path(walk, "entry", &entry, &found->info);
        ret->has_strict = true;
    } else if (!equal) {
        ret->strict = ret->loose;
        ret->has_strict = true;
    }
    return NULL;
}

static struct bunshin_error *add_path(struct walk *walk, const struct frame *frame, const struct found found[VIEWS],
                                      struct pair *ret, bool *ret_of_others) {
    struct share now, before;
    TRY(share_of(walk, frame, NEW, &found[NEW], &found[BASE], &now, ret_of_others));
    TRY(share_of(walk, frame, OLD, &found[OLD], &found[BASE], &before, ret_of_others));
    if (now.has_loose)
        sum_add(&ret->loose, &now.loose);
    if (before.has_loose)
        sum_subtract(&ret->loose, &before.loose);
    if (now.has_strict)
        sum_add(&ret->strict, &now.strict);
    if (before.has_strict)
        sum_subtract(&ret->strict, &before.strict);
    return NULL;
}

static void join(struct walk *walk, const struct pair *part) {
    sum_join(&walk->sum.loose, &part->loose);
    sum_join(&walk->sum.strict, &part->strict);
}

/* ---- directories ---- */

static void enter(const struct walk *walk, const struct frame *frame, const char *path, struct frame *ret) {
    const struct tree *tree = walk->tree;
    enum { UNKNOWN, NOTHING, HIDES, DIRECTORY, OPAQUE } kind[FILES_LAYERS] = {0};
    *ret = (struct frame){.parent = frame};
    for (int view = 0; view < VIEWS; view++) {
        if (!frame->there[view])
            continue;
        for (int i = first_of(walk, (enum view)view); i < tree->count; i++) {
            if (!frame->sees[view][i])
                continue;
            if (kind[i] == UNKNOWN) {
                struct stat info;
                kind[i] = fstatat(tree->fd[i], path, &info, AT_SYMLINK_NOFOLLOW) != 0 ? NOTHING
                          : !S_ISDIR(info.st_mode)                                    ? HIDES
                          : entry_is_opaque(tree->fd[i], path)                        ? OPAQUE
                                                                                      : DIRECTORY;
            }
            if (kind[i] == NOTHING)
                continue;
            if (kind[i] == HIDES)
                break;
            ret->sees[view][i] = ret->there[view] = true;
            if (kind[i] == OPAQUE)
                break;
        }
    }
}

static bool sees_base(const struct walk *walk, const struct frame *frame, enum view view) {
    for (int i = walk->tree->own; i < walk->tree->count; i++)
        if (frame->sees[view][i])
            return true;
    return false;
}

/* Whether the image's directory is there and hidden: what is missing in it counts. */
static bool masks(const struct walk *walk, const struct frame *frame, enum view view) {
    return frame->there[view] && !sees_base(walk, frame, view);
}

static bool sees_other_layers(const struct walk *walk, const struct frame *frame) {
    for (int i = walk->layer + 1; i < walk->tree->count; i++)
        if (frame->sees[NEW][i] != frame->sees[OLD][i])
            return true;
    return frame->there[NEW] != frame->there[OLD];
}

static struct bunshin_error *list(int directory, const char *path, struct buffer *ret) {
    int fd = openat(directory, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *stream = fd < 0 ? NULL : fdopendir(fd);
    if (!stream) {
        bool gone = errno == ENOENT || errno == ENOTDIR || errno == EACCES;
        struct bunshin_error *error = gone ? NULL : bunshin_error_os("cannot list %s", path);
        if (fd >= 0)
            close(fd);
        return error;
    }
    struct bunshin_error *error = NULL;
    for (struct dirent *entry; !error && (entry = readdir(stream));)
        if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
            error = buffer_append(ret, entry->d_name, strlen(entry->d_name) + 1);
    closedir(stream);
    return error;
}

static int by_name(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

/* The names that may make a difference, each once, as pointers into `text`. */
static struct bunshin_error *names_of(struct walk *walk, const struct frame *frame, const char *path, struct buffer *text,
                                      char ***ret, size_t *ret_count) {
    const struct tree *tree = walk->tree;
    if (frame->sees[NEW][walk->layer])
        TRY(list(tree->fd[walk->layer], path, text));
    bool several = false;
    if (sees_other_layers(walk, frame))
        for (int i = walk->layer + 1; i < tree->own; i++)
            if (frame->sees[OLD][i]) {
                several = true;
                TRY(list(tree->fd[i], path, text));
            }
    if (frame->there[BASE] && masks(walk, frame, NEW) != masks(walk, frame, OLD))
        for (int i = tree->own; i < tree->count; i++)
            if (frame->sees[BASE][i]) {
                several = true;
                TRY(list(tree->fd[i], path, text));
            }
    size_t count = 0;
    for (size_t at = 0; at < text->size; at += strlen((char *)text->data + at) + 1)
        count++;
    char **names = malloc((count + 1) * sizeof *names);
    if (!names)
        return bunshin_error_no_memory();
    count = 0;
    for (size_t at = 0; at < text->size; at += strlen((char *)text->data + at) + 1)
        names[count++] = (char *)text->data + at;
    if (several) {
        size_t kept = 0;
        qsort(names, count, sizeof *names, by_name);
        for (size_t i = 0; i < count; i++)
            if (!kept || strcmp(names[kept - 1], names[i]))
                names[kept++] = names[i];
        count = kept;
    }
    *ret = names;
    *ret_count = count;
    return NULL;
}

static struct bunshin_error *walk_directory(struct walk *walk, const struct frame *frame);

/* Source that changed: whether the bytecode of it in layers below matches may have changed too. */
static struct bunshin_error *add_compiled(struct walk *walk, const struct frame *frame, const char *stem, size_t directory_length) {
    const struct tree *tree = walk->tree;
    struct frame place;
    struct buffer text = {0};
    char before[ENTRY_PATH], name[ENTRY_PATH];
    struct bunshin_error *error = NULL;
    snprintf(before, sizeof before, "%s", walk->path);
    snprintf(name, sizeof name, "%s", stem);
    size_t stem_length = strlen(name) - 2; /* with the dot */
    if (directory_length + sizeof "__pycache__" + strlen(name) + 64 > sizeof walk->path)
        return NULL;
    strcpy(walk->path + directory_length, "__pycache__");
    enter(walk, frame, walk->path, &place);
    for (int i = walk->layer + 1; !error && i < tree->count; i++)
        if (place.sees[OLD][i] || place.sees[NEW][i] || place.sees[BASE][i])
            error = list(tree->fd[i], walk->path, &text);
    size_t length = strlen(walk->path);
    walk->path[length++] = '/';
    for (size_t at = 0; !error && at < text.size; at += strlen((char *)text.data + at) + 1) {
        const char *entry = (char *)text.data + at;
        struct stat info;
        bool again = false;
        if (strncmp(entry, name, stem_length) || length + strlen(entry) >= sizeof walk->path)
            continue;
        for (size_t other = 0; other < at; other += strlen((char *)text.data + other) + 1)
            again |= !strcmp((char *)text.data + other, entry);
        strcpy(walk->path + length, entry);
        /* The layer's own are met anyway. */
        if (again || (place.sees[NEW][walk->layer] && fstatat(tree->fd[walk->layer], walk->path, &info, AT_SYMLINK_NOFOLLOW) == 0))
            continue;
        struct found found[VIEWS];
        struct pair part = {0};
        bool others = false;
        for (int view = 0; view < VIEWS; view++)
            find(walk, &place, (enum view)view, walk->path, &found[view]);
        error = add_path(walk, &place, found, &part, &others);
        if (!error)
            join(walk, &part);
    }
    strcpy(walk->path, before);
    buffer_deinit(&text);
    return error;
}

static struct bunshin_error *walk_entry(struct walk *walk, const struct frame *frame, const char *name, size_t directory_length) {
    const struct tree *tree = walk->tree;
    struct found found[VIEWS];
    struct stat info;
    bool touched = frame->sees[NEW][walk->layer] && fstatat(tree->fd[walk->layer], walk->path, &info, AT_SYMLINK_NOFOLLOW) == 0;
    size_t length = strlen(name);
    bool source = length > 3 && !strcmp(name + length - 3, ".py");
    struct pair part = {0};
    walk->changed += touched;
    if (touched && known_share(tree, walk->layer, walk->path, &info, &part)) {
        join(walk, &part);
        return source ? add_compiled(walk, frame, name, directory_length) : NULL;
    }
    for (int view = 0; view < VIEWS; view++)
        find(walk, frame, (enum view)view, walk->path, &found[view]);
    bool others = false, directory = false;
    for (int view = 0; view < VIEWS; view++)
        directory |= found[view].layer >= 0 && S_ISDIR(found[view].info.st_mode);
    int64_t began = known_now();
    struct bunshin_error *error = add_path(walk, frame, found, &part, &others);
    if (error) { /* somebody changes it just now, or it is beyond us: no other state is like this one */
        bunshin_error_destroy(error);
        walk->digest->by_history = true;
        return digest_unique(walk->digest, "files that could not be read");
    }
    join(walk, &part);
    if (touched && !others && !directory)
        TRY(known_keep_share(tree, walk->layer, walk->path, &info, began, &part));
    if (source)
        TRY(add_compiled(walk, frame, name, directory_length));
    if (!directory)
        return NULL;
    struct frame *inner = malloc(sizeof *inner);
    if (!inner)
        return bunshin_error_no_memory();
    enter(walk, frame, walk->path, inner);
    error = inner->sees[NEW][walk->layer] || sees_other_layers(walk, inner) ? walk_directory(walk, inner) : NULL;
    free(inner);
    return error;
}

static struct bunshin_error *walk_directory(struct walk *walk, const struct frame *frame) {
    struct buffer text = {0};
    char **names = NULL;
    size_t count = 0, length = strcmp(walk->path, ".") ? strlen(walk->path) : 0;
    struct bunshin_error *error = names_of(walk, frame, walk->path, &text, &names, &count);
    for (size_t i = 0; !error && i < count; i++) {
        size_t size = strlen(names[i]);
        if (length + size + 2 > sizeof walk->path) {
            error = digest_unique(walk->digest, "paths that are too long");
            continue;
        }
        if (length)
            walk->path[length] = '/';
        memcpy(walk->path + length + (length > 0), names[i], size + 1);
        error = walk_entry(walk, frame, names[i], length + (length > 0));
    }
    if (length)
        walk->path[length] = '\0';
    else
        strcpy(walk->path, ".");
    free(names);
    buffer_deinit(&text);
    return error;
}

/* ---- the order ---- */

static struct bunshin_error *add_layer(struct digest *digest, const struct tree *tree, int layer, struct pair *sum, uint64_t *ret_changed) {
    struct walk *walk = calloc(1, sizeof *walk);
    struct frame *root = calloc(1, sizeof *root);
    struct bunshin_error *error = walk && root ? NULL : bunshin_error_no_memory();
    if (!error) {
        *walk = (struct walk){.digest = digest, .tree = tree, .layer = layer, .path = "."};
        for (int view = 0; view < VIEWS; view++)
            for (int i = first_of(walk, (enum view)view); i < tree->count; i++)
                root->there[view] = root->sees[view][i] = true;
        error = walk_directory(walk, root);
    }
    if (!error) {
        sum_join(&sum->loose, &walk->sum.loose);
        sum_join(&sum->strict, &walk->sum.strict);
        *ret_changed = walk->changed;
    }
    free(walk);
    free(root);
    return error;
}

struct bunshin_error *files_digest(struct digest *digest, struct tree *tree, struct pair *ret, uint64_t *ret_changed) {
    *ret_changed = 0;
    links_forget(tree, 0);
    for (; tree->known < tree->own - 1; tree->known++)
        TRY(add_layer(digest, tree, tree->own - 1 - tree->known, &tree->sealed, ret_changed));
    *ret = tree->sealed;
    return tree->own ? add_layer(digest, tree, 0, ret, ret_changed) : NULL;
}
