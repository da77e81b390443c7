#define _GNU_SOURCE
#include "fork/confine.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdint.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/syscall.h>

#include "arch/x86_64.h"

#ifndef SYS_mount_setattr
#define SYS_mount_setattr 442
#endif

#define CONFINE_NAMESPACES                                                                                             \
    (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET)

/* Refused with EPERM, whatever the arguments. */
static const int refused[] = {
    SYS_pivot_root, SYS_setns, SYS_init_module, SYS_finit_module, SYS_delete_module, SYS_bpf,
    SYS_keyctl, SYS_add_key, SYS_request_key, SYS_kexec_load, SYS_kexec_file_load, SYS_userfaultfd,
    SYS_perf_event_open, SYS_swapon, SYS_swapoff, SYS_reboot, SYS_acct, SYS_quotactl, SYS_settimeofday,
    SYS_clock_settime, SYS_clock_adjtime, SYS_adjtimex, SYS_iopl, SYS_ioperm, SYS_open_by_handle_at, SYS_syslog,
    SYS_vhangup, SYS_sethostname, SYS_setdomainname, SYS_lookup_dcookie, SYS_nfsservctl,
};
#define REFUSED (sizeof refused / sizeof *refused)
/* Refused like them without CAP_SYS_ADMIN. With it the newer interface is not there: programs fall back to mount(2), whose
 * arguments a filter can look at. */
static const int newer_mounts[] = {SYS_fsopen, SYS_fsconfig, SYS_fsmount, SYS_fspick, SYS_move_mount, SYS_open_tree, SYS_mount_setattr};
#define NEWER_MOUNTS (sizeof newer_mounts / sizeof *newer_mounts)
#define RULED (REFUSED + NEWER_MOUNTS + 6)

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define RETURN(value) BPF_STMT(BPF_RET | BPF_K, (value))
#define ERRNO(value) (SECCOMP_RET_ERRNO | (value))

/* Where a decision leads: jumps are written with these, and set to distances once the places are known. */
enum target {
    TARGET_ALLOW, TARGET_REFUSED, TARGET_UNKNOWN, TARGET_FLAGS, TARGET_GROUPS, TARGET_MOUNT, TARGET_NEWER_MOUNT, TARGET_UNMOUNT, TARGET_COUNT
};

struct ruled {
    uint32_t number;
    enum target target;
};

enum { SETTING_GROUPS = 1, MOUNTING = 2 }; /* what a variant of the filter lets pass */
static struct sock_filter program[4][RULED * 2 + 32];
static struct {
    size_t at;
    enum target target;
} jumps[RULED];
static size_t length, jump_count;

static void add(struct sock_filter instruction) { program[0][length++] = instruction; }

/*
 * A search tree over the sorted numbers, not a list: the kernel runs a filter once for every system call there is when it is
 * installed, which every process of a fork does, and a list makes that a tenth of a millisecond.
 */
static void decide(const struct ruled *ruled, size_t count) {
    if (count == 1) {
        jumps[jump_count].at = length;
        jumps[jump_count++].target = ruled->target;
        add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ruled->number, 0, 0));
        return;
    }
    size_t below = count / 2, branch = length;
    add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, ruled[below].number, 0, 0));
    decide(ruled, below);
    program[0][branch].jt = (uint8_t)(length - branch - 1);
    decide(ruled + below, count - below);
}

static size_t list_ruled(struct ruled *ret) {
    size_t count = 0;
    for (size_t i = 0; i < REFUSED; i++)
        ret[count++] = (struct ruled){(uint32_t)refused[i], TARGET_REFUSED};
    for (size_t i = 0; i < NEWER_MOUNTS; i++)
        ret[count++] = (struct ruled){(uint32_t)newer_mounts[i], TARGET_NEWER_MOUNT};
    ret[count++] = (struct ruled){SYS_mount, TARGET_MOUNT};
    ret[count++] = (struct ruled){SYS_umount2, TARGET_UNMOUNT};
    /* The filter cannot look into clone3's structure; ENOSYS makes libraries fall back to clone, which it can. */
    ret[count++] = (struct ruled){SYS_clone3, TARGET_UNKNOWN};
    ret[count++] = (struct ruled){SYS_unshare, TARGET_FLAGS};
    ret[count++] = (struct ruled){SYS_clone, TARGET_FLAGS};
    ret[count++] = (struct ruled){SYS_setgroups, TARGET_GROUPS};
    for (size_t i = 1; i < count; i++)
        for (size_t j = i; j && ret[j].number < ret[j - 1].number; j--) {
            struct ruled swap = ret[j];
            ret[j] = ret[j - 1];
            ret[j - 1] = swap;
        }
    return count;
}

/* Called first from a single thread (pid 1 at start); later calls find it built. */
static void build(void) {
    struct ruled ruled[RULED];
    size_t place[TARGET_COUNT];
    add((struct sock_filter)LOAD(arch));
    add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH_AUDIT, 1, 0));
    add((struct sock_filter)RETURN(ERRNO(ENOSYS)));
    add((struct sock_filter)LOAD(nr));
#ifdef ARCH_FOREIGN_ABI_BIT
    add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, ARCH_FOREIGN_ABI_BIT, 0, 1));
    add((struct sock_filter)RETURN(ERRNO(ENOSYS)));
#endif
    decide(ruled, list_ruled(ruled));
    place[TARGET_FLAGS] = length;
    add((struct sock_filter)LOAD(args[0]));
    add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CONFINE_NAMESPACES, 0, 1));
    place[TARGET_REFUSED] = length;
    add((struct sock_filter)RETURN(ERRNO(EPERM)));
    place[TARGET_ALLOW] = length;
    add((struct sock_filter)RETURN(SECCOMP_RET_ALLOW));
    place[TARGET_UNKNOWN] = length;
    add((struct sock_filter)RETURN(ERRNO(ENOSYS)));
    /* Programs that find themselves to be root set their supplementary groups, and some (xterm) end where that fails. Without
     * CAP_SETGID the call cannot change anything here: it does nothing, successfully. */
    place[TARGET_GROUPS] = length;
    add((struct sock_filter)RETURN(ERRNO(0)));
    /* Whoever may mount may not make writable again what is mounted read-only: that can be the machine's own. */
    place[TARGET_MOUNT] = length;
    add((struct sock_filter)LOAD(args[3]));
    add((struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, MS_REMOUNT | MS_RDONLY));
    add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, MS_REMOUNT, 0, 1));
    add((struct sock_filter)RETURN(ERRNO(EPERM)));
    add((struct sock_filter)RETURN(SECCOMP_RET_ALLOW));
    place[TARGET_NEWER_MOUNT] = length;
    add((struct sock_filter)RETURN(ERRNO(ENOSYS)));
    place[TARGET_UNMOUNT] = length;
    add((struct sock_filter)RETURN(SECCOMP_RET_ALLOW));
    for (size_t i = 0; i < jump_count; i++) {
        program[0][jumps[i].at].jt = (uint8_t)(place[jumps[i].target] - jumps[i].at - 1);
        program[0][jumps[i].at].jf = (uint8_t)(place[TARGET_ALLOW] - jumps[i].at - 1);
    }
    for (int variant = 3; variant >= 0; variant--) {
        memcpy(program[variant], program[0], sizeof program[0]);
        if (variant & SETTING_GROUPS)
            program[variant][place[TARGET_GROUPS]] = (struct sock_filter)RETURN(SECCOMP_RET_ALLOW);
        if (!(variant & MOUNTING))
            for (int target = TARGET_MOUNT; target <= TARGET_UNMOUNT; target++)
                program[variant][place[target]] = (struct sock_filter)RETURN(ERRNO(EPERM));
    }
}

const struct sock_filter *confine_filter(uint64_t bounding) {
    if (!length)
        build();
    return program[(bounding >> CAP_SETGID & 1 ? SETTING_GROUPS : 0) | (bounding >> CAP_SYS_ADMIN & 1 ? MOUNTING : 0)];
}

size_t confine_filter_length(void) {
    (void)confine_filter(0);
    return length;
}
