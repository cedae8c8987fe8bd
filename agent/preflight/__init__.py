"""Before the first start: is this host fit for what numalet promises? Facts are gathered, then judged."""
