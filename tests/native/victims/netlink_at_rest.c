/* Netlink sockets between questions: port, groups, filter and options are kept, and they are answered as before. */
#include "victim.h"
#include <linux/filter.h>
#include <linux/genetlink.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/socket.h>

static int ask_links(int fd, unsigned sequence) {
    struct {
        struct nlmsghdr head;
        struct rtgenmsg body;
    } ask = {.head = {.nlmsg_len = sizeof ask, .nlmsg_type = RTM_GETLINK, .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP, .nlmsg_seq = sequence}};
    static char answer[32768];
    int links = 0;
    must(send(fd, &ask, sizeof ask, 0));
    for (;;) {
        struct sockaddr_nl from;
        socklen_t length = sizeof from;
        ssize_t got = must(recvfrom(fd, answer, sizeof answer, 0, (struct sockaddr *)&from, &length));
        expect(from.nl_pid == 0, "an answer of port %u", from.nl_pid);
        unsigned left = (unsigned)got;
        for (struct nlmsghdr *item = (void *)answer; NLMSG_OK(item, left); item = NLMSG_NEXT(item, left)) {
            expect(item->nlmsg_seq == sequence, "an answer to question %u", item->nlmsg_seq);
            if (item->nlmsg_type == NLMSG_DONE)
                return links;
            links += item->nlmsg_type == RTM_NEWLINK;
        }
    }
}

static struct sockaddr_nl name_of(int fd) {
    struct sockaddr_nl name;
    socklen_t length = sizeof name;
    must(getsockname(fd, (struct sockaddr *)&name, &length));
    return name;
}

static uint32_t memberships(int fd) {
    uint32_t groups[64] = {0};
    socklen_t length = sizeof groups;
    must(getsockopt(fd, SOL_NETLINK, NETLINK_LIST_MEMBERSHIPS, groups, &length));
    return groups[0];
}

int main(void) {
    int asker = (int)must(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE)), on = 1;
    struct sockaddr_nl any = {.nl_family = AF_NETLINK};
    must(bind(asker, (struct sockaddr *)&any, sizeof any)); /* as getaddrinfo() does: the port is this process's pid */
    int links = ask_links(asker, 1);
    int watcher = (int)must(socket(AF_NETLINK, SOCK_DGRAM | SOCK_NONBLOCK, NETLINK_ROUTE)); /* as browsers do */
    struct sockaddr_nl groups = {.nl_family = AF_NETLINK, .nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR | RTMGRP_NOTIFY};
    must(bind(watcher, (struct sockaddr *)&groups, sizeof groups));
    must(setsockopt(watcher, SOL_NETLINK, NETLINK_EXT_ACK, &on, sizeof on));
    must(setsockopt(watcher, SOL_NETLINK, NETLINK_NO_ENOBUFS, &on, sizeof on));
    int size = 100000, devices = (int)must(socket(AF_NETLINK, SOCK_RAW, NETLINK_KOBJECT_UEVENT));
    struct sockaddr_nl kernel = {.nl_family = AF_NETLINK, .nl_groups = 1};
    must(setsockopt(devices, SOL_SOCKET, SO_RCVBUF, &size, sizeof size));
    struct sock_filter all[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0), BPF_STMT(BPF_RET | BPF_K, 0xffffffff)};
    must(setsockopt(devices, SOL_SOCKET, SO_ATTACH_FILTER, &(struct sock_fprog){2, all}, sizeof(struct sock_fprog)));
    must(bind(devices, (struct sockaddr *)&kernel, sizeof kernel));
    int fresh = (int)must(socket(AF_NETLINK, SOCK_RAW, NETLINK_GENERIC)), diag = (int)must(socket(AF_NETLINK, SOCK_RAW, NETLINK_SOCK_DIAG));
    must(bind(diag, (struct sockaddr *)&(struct sockaddr_nl){.nl_family = AF_NETLINK, .nl_pid = 77777}, sizeof any));
    int connected = (int)must(socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE));
    must(connect(connected, (struct sockaddr *)&any, sizeof any));
    uint32_t ports[] = {name_of(asker).nl_pid, name_of(watcher).nl_pid, name_of(devices).nl_pid, name_of(connected).nl_pid};
    uint32_t before = memberships(watcher);
    int room = 0, filter_before = 0, filter_after = 0, after = 0;
    socklen_t length = sizeof room, count = 0;
    must(getsockopt(devices, SOL_SOCKET, SO_RCVBUF, &room, &length));
    must(getsockopt(devices, SOL_SOCKET, SO_GET_FILTER, NULL, &count));
    filter_before = (int)count;
    ready();
    go();
    expect(name_of(asker).nl_pid == ports[0] && ports[0] == (uint32_t)getpid(), "the asker has port %u", name_of(asker).nl_pid);
    expect(name_of(watcher).nl_pid == ports[1] && name_of(devices).nl_pid == ports[2] && name_of(connected).nl_pid == ports[3], "ports");
    expect(name_of(fresh).nl_pid == 0 && name_of(diag).nl_pid == 77777, "port %u", name_of(diag).nl_pid);
    expect(memberships(watcher) == before && before, "groups %x, not %x", memberships(watcher), before);
    expect(memberships(devices) == 1 && memberships(asker) == 0, "groups %x", memberships(devices));
    length = sizeof after;
    must(getsockopt(devices, SOL_SOCKET, SO_RCVBUF, &after, &length));
    expect(after == room, "room for %d bytes, not %d", after, room);
    count = 0;
    must(getsockopt(devices, SOL_SOCKET, SO_GET_FILTER, NULL, &count));
    filter_after = (int)count;
    expect(filter_after == filter_before && filter_before == 2, "a filter of %d steps", filter_after);
    length = sizeof after;
    must(getsockopt(watcher, SOL_NETLINK, NETLINK_EXT_ACK, &after, &length));
    expect(after == 1, "an option is off");
    char text[64];
    expect(recv(watcher, text, sizeof text, MSG_PEEK) == -1 && errno == EAGAIN, "the watcher has been told something");
    expect(recv(devices, text, sizeof text, MSG_PEEK | MSG_DONTWAIT) == -1 && errno == EAGAIN, "a device has come");
    expect(ask_links(asker, 2) == links && links > 0, "there are other links");
    expect(ask_links(connected, 3) == links, "the connected one is not answered");
    ok();
}
