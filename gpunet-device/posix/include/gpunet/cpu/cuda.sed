# Makes of CUDA C++ what gpunet_cpu.h reads: `kernel<<<SHAPE>>>(ARGUMENTS)`, on one line, becomes a call. For sed -E -f.
s/([A-Za-z_][A-Za-z_0-9:]*(<[^<>]*>)?)<<<(.*)>>>[[:space:]]*\(/::gpunet::cpu::launch([](auto... gpunet_given) { \1(gpunet_given...); }, \3)(/
