/*
 * Who is born where, and how. Sessions are inherited at birth and can never be joined later, so each process must be
 * cloned by somebody who is in its session at that moment, and must yet end up under its own parent. The plan is a matter
 * of numbers alone: a seal makes it to refuse what cannot be born, a rebuild makes it again and follows it.
 */
#ifndef BUNSHIN_FORK_BIRTHS_H
#define BUNSHIN_FORK_BIRTHS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/error.h"

enum birth_way {
    BIRTH_CHILD,   /* cloned by its parent */
    BIRTH_SIBLING, /* pid 1's, cloned by its session's leader, who is pid 1's too (CLONE_PARENT) */
    BIRTH_ORPHAN,  /* pid 1's, through a process in between that ends at once */
    BIRTH_ADOPTED, /* another's, through a process in between that ends while that one is a subreaper */
};

struct birth { /* a process to be born: one of the image, or a helper that plays a dead leader */
    int32_t process; /* index, or IMAGE_NONE for a helper */
    pid_t pid, parent, session, group;
    pid_t foreground; /* of a session leader with a terminal: a group that must be there once, or 0 */
    pid_t creator; /* who clones it; 1 for us */
    pid_t between; /* BIRTH_ORPHAN, BIRTH_ADOPTED: the pid of the one in between */
    pid_t born_in; /* a session leader's children of another session need it born there; 0: nobody does */
    enum birth_way way;
    int round;  /* BIRTH_ADOPTED: when its parent adopts */
    bool early; /* a session leader that is born before its parent leads a session itself */
    bool leads_others; /* it has left the process group that bears its number, and others have not */
};

struct births {
    struct birth *list;
    size_t count;
    int32_t *slots; /* where a pid stands in the list: a hash table */
    size_t slot_count;
    pid_t *adopter; /* by round */
    int round_count;
    bool movers; /* somebody leads_others */
    bool zombies;
};

/* Room for `processes` and their helpers; the caller adds them with births_add(). */
struct bunshin_error *births_init(struct births *births, size_t processes) MUST_CHECK;
void births_deinit(struct births *births);
void births_add(struct births *births, const struct birth *birth);
struct birth *births_find(const struct births *births, pid_t pid);
/* Adds helpers and fills in creators and ways. *ret_impossible: one that no order of births can put in its place, or NULL. */
struct bunshin_error *births_plan(struct births *births, const struct birth **ret_impossible) MUST_CHECK;

#endif
