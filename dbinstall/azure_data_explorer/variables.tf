variable "subscription_id" {
  description = "The subscription that pays."
  type        = string
}

variable "cluster_name" {
  description = "Name of the cluster, unique in Azure: 4 to 22 lower-case letters and digits."
  type        = string

  validation {
    condition     = can(regex("^[a-z][a-z0-9]{3,21}$", var.cluster_name))
    error_message = "Use 4 to 22 lower-case letters and digits, a letter first."
  }
}

variable "location" {
  description = "Region: that of the Kubernetes cluster in which the workers run."
  type        = string
  default     = "westeurope"
}

variable "sku" {
  description = "Size of a node. The published results: Standard_L8s_v2 (storage optimized) and Standard_E8a_v4 (compute optimized)."
  type        = string
  default     = "Standard_L8s_v2"
}

variable "capacity" {
  description = "Number of nodes; 1 for a Dev(No SLA) sku."
  type        = number
  default     = 2
}

variable "database" {
  description = "Name of the database."
  type        = string
  default     = "SampleDB"
}
