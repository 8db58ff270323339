/* clones.h - functions compiled for several processors, whose arithmetic gives the same results on all of them. */
#ifndef ZS_CLONES_H
#define ZS_CLONES_H

/* A fused multiply-add rounds once where GDAL rounds twice, and only some of the clones below would use it.
 * Floating-point exception flags and errno are not used, and setting them would prevent vectorized loops. */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off", "no-trapping-math", "no-math-errno")
#endif

#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12 && \
    !defined(__SANITIZE_ADDRESS__) && defined(__OPTIMIZE__)
#define ZS_CLONES __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
/* Where a third would take as long to compile again, and gain nothing. */
#define ZS_TWO_CLONES __attribute__((target_clones("default", "arch=x86-64-v3")))
#define ZS_HAS_CLONES 1
#else
#define ZS_HAS_CLONES 0
#define ZS_CLONES
#define ZS_TWO_CLONES
#endif

#define ZS_INLINE static inline __attribute__((always_inline))

#endif
