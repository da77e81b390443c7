#define _GNU_SOURCE
#include "fork/births.h"

#include <stdlib.h>

#include "fork/image.h"

struct bunshin_error *births_init(struct births *births, size_t processes) {
    *births = (struct births){.slot_count = 64};
    size_t most = processes * 4 + 1; /* each may need helpers: for its session, its group, its terminal */
    while (births->slot_count < most * 2)
        births->slot_count *= 2;
    births->list = calloc(most, sizeof *births->list);
    births->slots = malloc(births->slot_count * sizeof *births->slots);
    births->adopter = calloc(most, sizeof *births->adopter);
    if (!births->list || !births->slots || !births->adopter) {
        births_deinit(births);
        return bunshin_error_no_memory();
    }
    for (size_t i = 0; i < births->slot_count; i++)
        births->slots[i] = -1;
    return NULL;
}

void births_deinit(struct births *births) {
    free(births->list);
    free(births->slots);
    free(births->adopter);
    *births = (struct births){0};
}

static int32_t *slot_of(const struct births *births, pid_t pid) {
    size_t at = ((uint32_t)pid * 2654435761u) & (births->slot_count - 1);
    while (births->slots[at] >= 0 && births->list[births->slots[at]].pid != pid)
        at = (at + 1) & (births->slot_count - 1);
    return &births->slots[at];
}

void births_add(struct births *births, const struct birth *birth) {
    *slot_of(births, birth->pid) = (int32_t)births->count;
    births->list[births->count] = *birth;
    births->list[births->count++].way = BIRTH_CHILD;
}

struct birth *births_find(const struct births *births, pid_t pid) {
    int32_t index = *slot_of(births, pid);
    return index < 0 ? NULL : &births->list[index];
}

static bool is_above(const struct births *births, pid_t above, pid_t pid) {
    const struct birth *birth = births_find(births, pid);
    for (size_t steps = 0; birth && steps <= births->count; steps++) {
        if (birth->parent == above)
            return true;
        birth = births_find(births, birth->parent);
    }
    return false;
}

/* Whether a session leader can be born in a session, so that children of its from that time can be: it decides it, too. */
static bool can_be_born_in(struct births *births, struct birth *leader, pid_t session) {
    if (leader->born_in)
        return leader->born_in == session;
    struct birth *parent = births_find(births, leader->parent);
    if (leader->parent == 1 ? session > 1 : !parent)
        return false;
    if (parent && (parent->session != session && (parent->session != parent->pid || !can_be_born_in(births, parent, session))))
        return false;
    leader->early = parent && parent->session != session;
    leader->born_in = session;
    return true;
}

/* A dead session leader is played under the lowest of those who adopted from its session: the others are above that one. */
static bool place_helper(const struct births *births, struct birth *leader, pid_t adopter) {
    if (leader->parent == adopter || is_above(births, adopter, leader->parent))
        return true;
    if (leader->parent != 1 && !is_above(births, leader->parent, adopter))
        return false;
    leader->parent = leader->creator = adopter;
    return true;
}

static int round_of(struct births *births, pid_t adopter) {
    for (int round = 0; round < births->round_count; round++)
        if (births->adopter[round] == adopter)
            return round;
    births->adopter[births->round_count] = adopter;
    return births->round_count++;
}

/* For one that is not pid 1's. False: impossible. */
static bool plan_under_parent(struct births *births, struct birth *birth) {
    struct birth *parent = births_find(births, birth->parent), *leader = births_find(births, birth->session);
    birth->creator = birth->parent;
    if (birth->session == birth->pid || !parent || parent->session == birth->session)
        return parent != NULL;
    if (parent->session == parent->pid && can_be_born_in(births, parent, birth->session))
        return true;
    if (!leader || (leader->process == IMAGE_NONE ? !place_helper(births, leader, birth->parent)
                                                  : !is_above(births, birth->parent, leader->pid)))
        return false;
    birth->way = BIRTH_ADOPTED;
    birth->creator = leader->pid;
    birth->round = round_of(births, birth->parent);
    return true;
}

static bool plan_under_us(struct births *births, struct birth *birth) {
    const struct birth *leader = births_find(births, birth->session);
    birth->creator = 1;
    if (birth->session == birth->pid || birth->session <= 1)
        return true;
    if (!leader)
        return false;
    birth->creator = leader->pid;
    birth->way = leader->parent == 1 ? BIRTH_SIBLING : BIRTH_ORPHAN;
    return true;
}

struct bunshin_error *births_plan(struct births *births, const struct birth **ret_impossible) {
    size_t processes = births->count;
    *ret_impossible = NULL;
    for (size_t i = 0; i < processes; i++) {
        struct birth *birth = &births->list[i];
        pid_t session = birth->session, groups[2] = {birth->group, birth->foreground};
        if (session > 1 && !births_find(births, session))
            births_add(births, &(struct birth){.process = IMAGE_NONE, .pid = session, .parent = 1, .session = session, .group = session});
        for (int which = 0; which < 2; which++) {
            pid_t group = groups[which];
            struct birth *leader = births_find(births, group);
            if (group > 1 && !leader)
                births_add(births, &(struct birth){.process = IMAGE_NONE, .pid = group, .parent = 1, .session = session, .group = group});
            if (leader && leader->group != group)
                leader->leads_others = births->movers = true;
        }
    }
    for (int us = 0; us < 2; us++)
        for (size_t i = 0; i < births->count; i++) {
            struct birth *birth = &births->list[i];
            if ((birth->parent == 1) != us || (birth->process == IMAGE_NONE && !us))
                continue;
            if (!(us ? plan_under_us(births, birth) : plan_under_parent(births, birth))) {
                *ret_impossible = birth;
                return NULL;
            }
        }
    return NULL;
}
