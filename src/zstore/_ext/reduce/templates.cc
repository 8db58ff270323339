/* templates.cc - the folds for every type of items. Nothing here knows of Python: what takes longest is compiled once
 * for all its versions.
 */
#include "fold.h"

#define ZS_FOLDS(FOLD)                                                                                 \
    {zs_fold<FOLD, uint8_t>,  zs_fold<FOLD, int8_t>,  zs_fold<FOLD, uint16_t>, zs_fold<FOLD, int16_t>, \
     zs_fold<FOLD, uint32_t>, zs_fold<FOLD, int32_t>, zs_fold<FOLD, uint64_t>, zs_fold<FOLD, int64_t>, \
     zs_fold<FOLD, float>,    zs_fold<FOLD, double>}

const zs_folding zs_foldings[ZS_FOLD_COUNT][10] = {
    ZS_FOLDS(zs_sum),
    {NULL, NULL, NULL, NULL, zs_fold<zs_wide_sum, uint32_t>, zs_fold<zs_wide_sum, int32_t>,
     zs_fold<zs_wide_sum, uint64_t>, zs_fold<zs_wide_sum, int64_t>, NULL, NULL},
    {zs_fold<zs_narrow_sum, uint8_t>, zs_fold<zs_narrow_sum, int8_t>, zs_fold<zs_narrow_sum, uint16_t>,
     zs_fold<zs_narrow_sum, int16_t>},
    ZS_FOLDS(zs_least_item),
    ZS_FOLDS(zs_greatest_item),
    /* whether an integer is zero, or nodata, does not depend on its sign */
    {zs_fold<zs_counts, uint8_t>, zs_fold<zs_counts, uint8_t>, zs_fold<zs_counts, uint16_t>,
     zs_fold<zs_counts, uint16_t>, zs_fold<zs_counts, uint32_t>, zs_fold<zs_counts, uint32_t>,
     zs_fold<zs_counts, uint64_t>, zs_fold<zs_counts, uint64_t>, zs_fold<zs_counts, float>, zs_fold<zs_counts, double>},
    {zs_fold<zs_two_moments, uint8_t>, zs_fold<zs_two_moments, int8_t>, zs_fold<zs_two_moments, uint16_t>,
     zs_fold<zs_two_moments, int16_t>},
    {NULL, NULL, NULL, NULL, zs_fold<zs_deviations, uint32_t>, zs_fold<zs_deviations, int32_t>,
     zs_fold<zs_deviations, uint64_t>, zs_fold<zs_deviations, int64_t>, zs_fold<zs_deviations, float>,
     zs_fold<zs_deviations, double>},
    ZS_FOLDS(zs_first_least),
    ZS_FOLDS(zs_first_greatest),
};
