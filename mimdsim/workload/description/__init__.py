"""What a workload file describes, validated: network, training, data, mapping."""
