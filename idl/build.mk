idl_PROTOS := $(wildcard idl/proto/*.proto)
