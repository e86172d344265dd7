/* What the kernels and their host program share. */
#ifndef QUEUE_H
#define QUEUE_H

/* What kernels found. In memory that the host reads, too. */
struct queue_result {
    unsigned int wrong;        /* bytes that are not what was sent */
    int error;                 /* the first errno, positive; 0: none */
    unsigned long long played; /* messages that were sent and came back */
    unsigned long failed;      /* 64 bits: how the queue has fared, an errno, positive; 0: well */
};

#endif
