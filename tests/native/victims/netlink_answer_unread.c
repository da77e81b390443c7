/* A netlink socket with an answer that nobody has read yet: only the kernel could send it again. */
#include "victim.h"
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

int main(void) {
    int fd = (int)must(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
    struct {
        struct nlmsghdr head;
        struct rtgenmsg body;
    } ask = {.head = {.nlmsg_len = sizeof ask, .nlmsg_type = RTM_GETLINK, .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP, .nlmsg_seq = 9}};
    must(send(fd, &ask, sizeof ask, 0));
    ready();
    go();
    static char answer[32768];
    ssize_t got = must(recv(fd, answer, sizeof answer, MSG_DONTWAIT));
    expect(got > (ssize_t)sizeof(struct nlmsghdr) && ((struct nlmsghdr *)(void *)answer)->nlmsg_seq == 9, "an answer of %zd bytes", got);
    ok();
}
