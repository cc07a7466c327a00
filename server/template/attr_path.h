/* attr_path.h: attribute paths ("a.b.0") as filters take them. */
#ifndef TOKEND_ATTR_PATH_H
#define TOKEND_ATTR_PATH_H

#include "runtime.h"

/* item's attribute by a path or index; an undefined one is `otherwise` if that is given. */
bool attribute_path(struct rt *, struct value item, struct value path,
                    const struct value *otherwise, struct value *out);
/* The attribute of every item. */
bool map_attribute(struct rt *, struct value items, struct value path, struct list **out);

#endif
