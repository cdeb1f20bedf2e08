provider "azurerm" {
  subscription_id = var.subscription_id

  features {}
}

data "azurerm_client_config" "current" {}

resource "azurerm_resource_group" "benchmark" {
  name     = "${var.cluster_name}-benchmark"
  location = var.location
}

resource "azurerm_kusto_cluster" "benchmark" {
  name                = var.cluster_name
  location            = azurerm_resource_group.benchmark.location
  resource_group_name = azurerm_resource_group.benchmark.name

  # Without this `batch: false` is refused. It costs memory of the nodes also when it is not used.
  streaming_ingestion_enabled = true

  sku {
    name     = var.sku
    capacity = var.capacity
  }
}

resource "azurerm_kusto_database" "benchmark" {
  name                = var.database
  location            = azurerm_resource_group.benchmark.location
  resource_group_name = azurerm_resource_group.benchmark.name
  cluster_name        = azurerm_kusto_cluster.benchmark.name

  # The events are of 2024 on by their own time, but it is the time of ingestion that counts here.
  hot_cache_period   = "P7D"
  soft_delete_period = "P31D"
}

# The application that the tool logs in as.
resource "azuread_application" "benchmark" {
  display_name = "${var.cluster_name}-benchmark"
}

resource "azuread_service_principal" "benchmark" {
  client_id = azuread_application.benchmark.client_id
}

resource "azuread_application_password" "benchmark" {
  application_id = azuread_application.benchmark.id
  display_name   = "benchmark"
}

# Admin, since it makes and drops tables and sets their policies; in this database alone.
resource "azurerm_kusto_database_principal_assignment" "benchmark" {
  name                = "benchmark"
  resource_group_name = azurerm_resource_group.benchmark.name
  cluster_name        = azurerm_kusto_cluster.benchmark.name
  database_name       = azurerm_kusto_database.benchmark.name

  tenant_id      = data.azurerm_client_config.current.tenant_id
  principal_id   = azuread_service_principal.benchmark.client_id
  principal_type = "App"
  role           = "Admin"
}
