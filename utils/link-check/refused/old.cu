// C++14.
// flags: -std=c++14
// refused: needs C++17
#include <gpunet.cuh>
